//! A second, independent decoder of tiles, written from the format in docs/map.md.

/// A decoded tile, column by column.
#[derive(Debug, Default, PartialEq)]
pub struct DecodedTile {
    /// `true`: a row of the columns is a cell of drivers; `false`: a point, which is one driver.
    pub is_cells: bool,
    pub now_ms: f64,
    pub lat_e7: Vec<i32>,
    pub lng_e7: Vec<i32>,
    pub ts_s: Vec<u32>,
    /// Number of drivers in each cell; empty for points.
    pub counts: Vec<u32>,
    pub speed_cms: Vec<u16>,
    /// Heading of each point, in hundredths of a degree; empty for cells.
    pub heading_cdeg: Vec<u16>,
    /// Driver id of each point; empty for cells.
    pub ids: Vec<String>,
}

/// A tile with its name and version, as in a response of `/api/tiles`.
#[derive(Debug, PartialEq)]
pub struct NamedTile {
    /// z/x/y
    pub name: String,
    pub version: u64,
    pub tile: DecodedTile,
}

/// Decodes a response of `/api/tiles`.
pub fn read_all(mut bytes: &[u8]) -> Vec<NamedTile> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        // z, x, y and the length of the tile have four bytes each, and the version has eight.
        let (header, after_header) = bytes.split_at(24);
        let number =
            |index: usize| u32::from_le_bytes(header[index * 4..][..4].try_into().unwrap());
        let (tile, after_tile) = after_header.split_at(number(3) as usize);
        parts.push(NamedTile {
            name: format!("{}/{}/{}", number(0), number(1), number(2)),
            version: u64::from_le_bytes(header[16..].try_into().unwrap()),
            tile: read(tile),
        });
        bytes = after_tile;
    }
    parts
}

/// Decodes one tile.
pub fn read(bytes: &[u8]) -> DecodedTile {
    assert_eq!((bytes[0], &bytes[2..4]), (1, &[0, 0][..]), "version 1");
    let rows = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let mut offset = 16;
    let mut column = |size: usize| {
        let values: Vec<&[u8]> = bytes[offset..offset + rows * size].chunks(size).collect();
        offset = (offset + rows * size).next_multiple_of(4);
        values
    };
    let int = |value: &[u8]| i32::from_le_bytes(value.try_into().unwrap());
    let short = |value: &[u8]| u16::from_le_bytes(value.try_into().unwrap());
    let mut tile = DecodedTile {
        is_cells: bytes[1] == 1,
        now_ms: f64::from_le_bytes(bytes[8..16].try_into().unwrap()),
        lat_e7: column(4).into_iter().map(int).collect(),
        lng_e7: column(4).into_iter().map(int).collect(),
        ts_s: column(4).into_iter().map(|value| int(value).cast_unsigned()).collect(),
        ..DecodedTile::default()
    };
    if tile.is_cells {
        tile.counts = column(4).into_iter().map(|value| int(value).cast_unsigned()).collect();
        tile.speed_cms = column(2).into_iter().map(short).collect();
        assert_eq!(offset, bytes.len());
        return tile;
    }
    tile.speed_cms = column(2).into_iter().map(short).collect();
    tile.heading_cdeg = column(2).into_iter().map(short).collect();
    let lengths: Vec<usize> = column(1).into_iter().map(|length| usize::from(length[0])).collect();
    for length in lengths {
        tile.ids.push(String::from_utf8(bytes[offset..offset + length].to_vec()).unwrap());
        offset += length;
    }
    assert_eq!(offset, bytes.len());
    tile
}
