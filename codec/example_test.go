package codec_test

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/codec"
)

func ExampleJSON() {
	type Click struct {
		Ad   string `json:"ad_id"`
		Cost int64  `json:"cost"`
	}
	c := codec.JSON[Click]()

	var click Click
	if err := c.Decode([]byte(`{"ad_id":"ad-42","cost":12}`), &click); err != nil {
		fmt.Println(err)
	}
	fmt.Println(click.Ad, click.Cost)

	err := c.Decode([]byte(`{"ad_id":"ad-42","cost":"twelve"}`), &click)
	fmt.Println(err)
	// Output:
	// ad-42 12
	// JSON string at byte 24, in /cost can't become a Go int64
}

func ExampleString() {
	var s string
	fmt.Println(codec.String().Decode([]byte("caf\xe9"), &s))
	// Output: invalid UTF-8 at byte 3 (0xe9)
}

// counter is a codec of one's own: a big-endian number of eight bytes.
type counter struct{}

func (counter) Decode(b []byte, v *uint64) error {
	if len(b) != 8 {
		return fmt.Errorf("a counter has 8 bytes, not %d", len(b))
	}
	*v = binary.BigEndian.Uint64(b)
	return nil
}

func (counter) Encode(dst []byte, v *uint64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, *v), nil
}

func ExampleCodec() {
	var c codec.Codec[uint64] = counter{}
	n := uint64(258)
	b, err := c.Encode(nil, &n)
	fmt.Println(b, err)
	// Output: [0 0 0 0 0 0 1 2] <nil>
}
