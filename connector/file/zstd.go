package file

import "encoding/binary"

// zstdFrames follows the structure of zstd data (RFC 8878, section 3.1) without
// decoding it, to tell the end of a file from a file that was cut short: the
// decoder takes a cut in certain headers for the end.
type zstdFrames struct {
	part zstdPart // which header comes next
	head [4]byte  // what is there of it
	have int
	skip int64 // bytes before it
	sum  bool  // a checksum follows the last block of the frame
}

type zstdPart int

const (
	zstdMagic zstdPart = iota
	zstdSkippable
	zstdDescriptor
	zstdBlock
)

// walk takes the next bytes of the file.
func (z *zstdFrames) walk(p []byte) {
	sizes := [...]int{zstdMagic: 4, zstdSkippable: 4, zstdDescriptor: 1, zstdBlock: 3}
	for len(p) > 0 {
		if z.skip > 0 {
			n := min(z.skip, int64(len(p)))
			p, z.skip = p[n:], z.skip-n
			continue
		}
		n := copy(z.head[z.have:sizes[z.part]], p)
		p, z.have = p[n:], z.have+n
		if z.have == sizes[z.part] {
			z.have = 0
			z.step()
		}
	}
}

// step takes a header, all of which is there.
func (z *zstdFrames) step() {
	switch z.part {
	case zstdMagic:
		z.part = zstdDescriptor // the decoder refuses any other magic
		if z.head[0]&0xf0 == 0x50 && z.head[1] == 0x2a {
			z.part = zstdSkippable
		}
	case zstdSkippable:
		z.skip = int64(binary.LittleEndian.Uint32(z.head[:]))
		z.part = zstdMagic
	case zstdDescriptor:
		d := z.head[0]
		single := int64(d >> 5 & 1)
		z.sum = d>>2&1 == 1
		z.skip = 1 - single                         // window
		z.skip += [...]int64{0, 1, 2, 4}[d&3]       // dictionary
		z.skip += [...]int64{single, 2, 4, 8}[d>>6] // content size
		z.part = zstdBlock
	case zstdBlock:
		b := uint32(z.head[0]) | uint32(z.head[1])<<8 | uint32(z.head[2])<<16
		z.skip = int64(b >> 3)
		if b>>1&3 == 1 { // one byte, repeated
			z.skip = 1
		}
		if b&1 == 1 {
			z.part = zstdMagic
			if z.sum {
				z.skip += 4
			}
		}
	}
}

// whole reports whether what was walked ends where a frame ends.
func (z *zstdFrames) whole() bool { return z.part == zstdMagic && z.have == 0 && z.skip == 0 }
