// mochi-mqtt with its sessions on disk: broker ADDRESS FILE
package main

import (
	"log"
	"math"
	"os"
	"os/signal"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/bolt"
	"github.com/mochi-mqtt/server/v2/listeners"
	"go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	server := mqtt.New(nil)
	limits := server.Options.Capabilities
	limits.MaximumPacketSize = 1 << 20
	// The client's Receive Maximum sets the window, so the broker's own limits are as high as possible.
	limits.MaximumInflight = math.MaxUint16
	limits.ReceiveMaximum = math.MaxUint16
	limits.MaximumClientWritesPending = math.MaxUint16
	must(server.AddHook(new(auth.AllowHook), nil))
	// NoSync: an fsync for each message would allow only a few hundred messages a second. A power cut loses the last messages.
	must(server.AddHook(new(bolt.Hook), &bolt.Options{Path: os.Args[2], Options: &bbolt.Options{NoSync: true}}))
	must(server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: os.Args[1]})))
	must(server.Serve())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	must(server.Close())
}
