// Command kafkaminutes is the first program of docs/kafka.md: clicks from a topic,
// counted per ad and minute into another one.
package main

import (
	"strconv"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/cli"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/window"
)

type Click struct {
	Ad string    `json:"ad_id"`
	At time.Time `json:"ts"`
}

type Count = weir.Result[string, int64]

func main() { cli.Main(job) }

func job(p *cli.Params) *weir.Job {
	cluster := kafka.Connect(p) // --brokers, TLS and login: flags, environment or a file
	in, out := p.Need("input", "topic of the clicks"), p.Need("output", "topic of the counts")
	job := weir.NewJob("clicks")
	job.From("clicks", kafka.Source(cluster, kafka.Named(in), codec.JSON[Click]()),
		weir.EventTime(func(c Click) time.Time { return c.At }, 30*time.Second)).
		KeyBy(func(c Click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute, window.EachBarrier)). // a count at each checkpoint, not only at the minute's end
		Count("per-minute").
		To("counts", kafka.Sink(cluster, out, encode, kafka.CreateTopics(4, 1))) // one copy, on make kafka's broker; 3 on a cluster
	return job
}

// encode makes the message of a count: the key AD|MINUTE, and the count as text.
func encode(c *Count, m *kafka.Message) error {
	m.Key = append(append(m.Key, c.Key...), '|')
	m.Key = c.Start.AppendFormat(m.Key, time.RFC3339)
	m.Value = strconv.AppendInt(m.Value, c.Value, 10)
	return nil
}
