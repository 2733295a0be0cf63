package fastjson_test

import (
	"fmt"

	"github.com/weirstream/weir/codec/fastjson"
)

func ExampleJSON() {
	type Click struct {
		Ad   string `json:"ad_id"`
		Cost int64  `json:"cost"`
	}
	c := fastjson.JSON[Click]()

	var click Click
	if err := c.Decode([]byte(`{"ad_id":"ad-42","cost":12}`), &click); err != nil {
		fmt.Println(err)
	}
	fmt.Println(click.Ad, click.Cost)

	err := c.Decode([]byte(`{"ad_id":"ad-42","ad_id":"ad-43"}`), &click)
	fmt.Println(err)
	// Output:
	// ad-42 12
	// not valid JSON: duplicate object member name at byte 17, in /ad_id
}
