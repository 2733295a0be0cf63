// Command mixed is a job for the harness, built with the public API as users
// would: clicks from a topic or a file, and their counts into any of a topic, a
// database and files, in every combination that the example hasn't.
package main

import (
	"encoding/json"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/cli"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// click is one record of the input; its time is RFC 3339 or epoch milliseconds.
type click struct {
	ID string `json:"click_id"`
	Ad string `json:"ad_id"`
	At stamp  `json:"ts"`
}

type stamp time.Time

// UnmarshalJSON implements json.Unmarshaler.
func (s *stamp) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return (*time.Time)(s).UnmarshalJSON(b)
	}
	var ms int64
	err := json.Unmarshal(b, &ms)
	*s = stamp(time.UnixMilli(ms))
	return err
}

// count is a row, a line, or the value of a message.
type count struct {
	Ad     string `db:"ad_id" json:"ad_id"`
	Minute string `db:"minute" json:"minute"`
	Clicks int64  `db:"clicks" json:"clicks"`
}

func main() { cli.Main(job) }

func job(p *cli.Params) *weir.Job {
	cluster := kafka.Connect(p, kafka.Prefix(p.String("prefix", "", "before the names that the job makes for itself")))
	timeout := p.Duration("transaction-timeout", time.Minute, "how long a transaction may be open")
	output := p.String("output", "", "topic for the counts")
	db := p.String("db", "", "SQLite database for the counts")
	files := p.String("files", "", "folder for files of the counts")
	dedup := p.Duration("dedup", 0, "two clicks with one id, less than this apart, are one")
	late := p.Duration("lateness", 30*time.Minute, "how long a minute's count is corrected")
	order := p.Duration("out-of-order", 30*time.Second, "how much the clicks of a split may be out of order")

	job := weir.NewJob("mixed")
	clicks := job.From("clicks", source(p, cluster), weir.EventTime(func(c click) time.Time { return time.Time(c.At) }, order))
	if dedup > 0 {
		clicks = clicks.KeyBy(func(c click) string { return c.ID }).Distinct("seen", dedup, weir.Admit(31*time.Minute)).Stream
	}
	counts := clicks.KeyBy(func(c click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute, window.Lateness(late), window.EachBarrier)).
		Count("clicks-per-minute").
		Map(func(r weir.Result[string, int64]) count { return count{r.Key, r.Start.Format(time.RFC3339), r.Value} })
	if output != "" {
		counts.To("topic", kafka.Sink(cluster, output, encode, kafka.TransactionTimeout(timeout)))
	}
	if db != "" {
		counts.To("table", sqlite.Upsert[count](db, "ad_minute", "ad_id", "minute"))
	}
	if files != "" {
		counts.To("files", file.JSONLines[count](files))
	}
	return job
}

func source(p *cli.Params, c *kafka.Cluster) weir.Source[click] {
	topic, path := p.String("input", "", "topic of clicks"), p.String("input-file", "", "file of clicks, instead of a topic")
	end := p.Bool("stop-at-end", false, "read the topic to where it ends now, and stop")
	if path != "" {
		return file.Lines(path, codec.JSON[click]())
	}
	var opts []kafka.SourceOption
	if end {
		opts = append(opts, kafka.StopAtEnd())
	}
	return kafka.Source(c, kafka.Named(topic), codec.JSON[click](), opts...)
}

func encode(c *count, m *kafka.Message) error {
	m.Key = append(append(append(m.Key, c.Ad...), '|'), c.Minute...)
	b, err := json.Marshal(c)
	m.Value = append(m.Value, b...)
	return err
}
