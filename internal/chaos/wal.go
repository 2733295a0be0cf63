package main

import (
	"bytes"
	"encoding/binary"
	"os"
)

// tornWAL reports whether SQLite's write-ahead log ends in a transaction that
// isn't whole: frames behind the last commit frame that belong to this round of
// the log, by their salts and the running checksum, or a part of a frame.
//
// The log: a header of 32 bytes (magic, version, page size, sequence, two
// salts, two checksums), then frames of a 24-byte header (page, size of the
// database after a commit or 0, the salts, the checksum so far) and a page. All
// big endian; the lowest bit of the magic says how the checksum reads words.
func tornWAL(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 32 {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[3]&1 == 1 {
		order = binary.BigEndian
	}
	page := int(binary.BigEndian.Uint32(b[8:]))
	salts := b[16:24]
	sum := checksum(order, [2]uint32{}, b[:24])
	torn := false
	for f := b[32:]; len(f) >= 24 && bytes.Equal(f[8:16], salts); f = f[24+page:] {
		if len(f) < 24+page {
			return true
		}
		sum = checksum(order, checksum(order, sum, f[:8]), f[24:24+page])
		if sum != [2]uint32{binary.BigEndian.Uint32(f[16:]), binary.BigEndian.Uint32(f[20:])} {
			break // left from a transaction that was torn before
		}
		torn = binary.BigEndian.Uint32(f[4:]) == 0
	}
	return torn
}

func checksum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}
