package main

import (
	"encoding/json/jsontext"
	"strconv"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
)

// Count is how often an ad was clicked in one minute.
type Count = weir.Result[string, int64]

// encodeCount makes the message of a count: the key AD|MINUTE, and in the value all
// three parts as JSON. The newest message of a key is the count. It appends to what
// the sink has ready, which costs a fraction of an encoder that looks for fields.
//
// The message keeps the time at which it is written: by the time of its clicks the
// topic would forget it early, when old clicks are counted again.
func encodeCount(c *Count, m *kafka.Message) (err error) {
	m.Key = append(append(m.Key, c.Key...), '|')
	m.Key = c.Start.AppendFormat(m.Key, time.RFC3339)

	m.Value = append(m.Value, `{"ad_id":`...)
	if m.Value, err = jsontext.AppendQuote(m.Value, c.Key); err != nil {
		return err
	}
	m.Value = append(m.Value, `,"minute":"`...)
	m.Value = c.Start.AppendFormat(m.Value, time.RFC3339)
	m.Value = append(m.Value, `","clicks":`...)
	m.Value = append(strconv.AppendInt(m.Value, c.Value, 10), '}')
	return nil
}

// AdMinute is a row of the table ad_minute, or a line of the files, besides the topic.
type AdMinute struct {
	Ad     string `db:"ad_id" json:"ad_id"`
	Minute string `db:"minute" json:"minute"`
	Clicks int64  `db:"clicks" json:"clicks"`
}

func adMinute(c Count) AdMinute { return AdMinute{c.Key, c.Start.Format(time.RFC3339), c.Value} }
