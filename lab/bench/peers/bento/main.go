// Bento's own program with the components that loadgen/peers/bento/bento.yaml names, and no others.
package main

import (
	"context"

	"github.com/warpstreamlabs/bento/public/service"

	_ "github.com/ClickHouse/clickhouse-go/v2"
	_ "github.com/warpstreamlabs/bento/public/components/io"
	_ "github.com/warpstreamlabs/bento/public/components/mqtt"
	_ "github.com/warpstreamlabs/bento/public/components/prometheus"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
	_ "github.com/warpstreamlabs/bento/public/components/sql/base"
)

func main() {
	service.RunCLI(context.Background())
}
