package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/cli"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/codec/fastjson"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// What readers of the topics that the job writes are promised.
const (
	exactlyOnce = "exactly-once"  // a transaction with the checkpoint's id and the offsets
	atLeastOnce = "at-least-once" // after a crash some counts come again
)

// The JSON codecs of the clicks.
const (
	codecV2   = "v2"   // encoding/json/v2
	codecFast = "fast" // the same, several times as fast
)

// settings is what a run can choose, besides where its clicks come from.
type settings struct {
	cluster                     *kafka.Cluster
	output                      string // topic; "": none
	db, files                   string // further places for the counts; "": not there
	deadLetters                 string // topic; "": the first record that can't be taken stops the job
	topics                      []kafka.SinkOption
	dedup, outOfOrder, lateness time.Duration
}

func job(p *cli.Params) *weir.Job {
	var c settings
	c.db = p.String("db", "", "SQLite database for the counts, table ad_minute; besides the topic, or instead of it")
	c.files = p.String("files", "", "folder for files of JSON lines with each count that changes; likewise")
	const outputHelp = "topic for each count that changes"
	if c.db == "" && c.files == "" {
		c.output = p.Need("output", outputHelp)
	} else {
		c.output = p.String("output", "", outputHelp)
	}
	// What the job makes for itself on the cluster is named after its output: two of
	// them with outputs of their own don't meet.
	prefix := ""
	if c.output != "" {
		prefix = c.output + "-"
	}
	c.cluster = kafka.Connect(p, kafka.Prefix(prefix))
	create := kafka.CreateTopics(int(p.Int("partitions", 4, "partitions of topics that are missing, and so are made")),
		int(p.Int("replication", 0, "copies of their partitions; 0: the brokers' default")))
	c.deadLetters = p.String("dead-letters", "", "topic for records that can't be taken, instead of stopping at the first")
	if c.deadLetters != "" && c.deadLetters == c.output {
		p.Bad("dead-letters", c.deadLetters, errors.New("another topic than that of the counts"))
	}
	clicks := source(p, c.cluster, create, c.output, c.deadLetters)

	c.topics = []kafka.SinkOption{create, kafka.TransactionTimeout(p.Duration("transaction-timeout", kafka.DefaultTransactionTimeout,
		"how long the brokers keep the transaction of a job that is silent; at least twice the checkpoint interval"))}
	if p.Choice("guarantee", exactlyOnce, []string{exactlyOnce, atLeastOnce}, "what readers of the topics that the job writes see") == atLeastOnce {
		c.topics = append(c.topics, kafka.AtLeastOnce())
	}
	c.dedup = p.Duration("dedup", 0, "two clicks with one id, less than this apart, are one; 0: every record counts")
	c.outOfOrder = p.Duration("out-of-order", 30*time.Second, "how much the clicks of a partition may be out of order")
	c.lateness = p.Duration("lateness", 30*time.Minute, "how long a minute's count is corrected by late clicks")
	return build(clicks, c)
}

// source declares where clicks come from: a topic, or files instead. output and
// letters are the topics that the job writes.
func source(p *cli.Params, cluster *kafka.Cluster, create kafka.TopicOption, output, letters string) weir.Source[Click] {
	value := codec.JSON[Click]()
	if p.Choice("codec", codecV2, []string{codecV2, codecFast}, "what decodes JSON; both accept the same") == codecFast {
		value = fastjson.JSON[Click]()
	}
	const inputHelp = "topic of the clicks"
	path := p.String("input-file", "", "file or glob of JSON lines, instead of the topic")
	var input string
	if path == "" {
		input = p.Need("input", inputHelp)
	} else {
		input = p.String("input", "", inputHelp)
	}
	// A producer that sends no key spreads one click's repeats over the partitions, and
	// one that sends no time isn't what anybody has meant: such records are mistakes.
	opts := []kafka.SourceOption{create, kafka.Require(kafka.Key, kafka.Timestamp), kafka.StartAt(start(p)),
		kafka.Discover(p.Duration("discover", kafka.DefaultDiscover, "how often new partitions are looked for; 0: never")),
		kafka.MaxMessage(int(p.Int("max-message", 1<<20, "bytes of the largest record that is taken, key and value together")))}
	if p.Bool("bounded", false, "read to the end that the topic has at the first start, close all windows, and finish") {
		opts = append(opts, kafka.Bounded())
	}
	if p.Bool("stop-at-end", false, "stop at the end that the topic has at this start; windows stay open, and the next run goes on") {
		opts = append(opts, kafka.StopAtEnd())
	}
	if p.Bool("accept-loss", false, "go on behind records that are gone, instead of stopping; for one start") {
		opts = append(opts, kafka.AcceptLoss())
	}
	if path != "" {
		return file.Lines(path, codec.Codec[Click](whole{value}))
	}
	if input != "" && input == output {
		p.Bad("output", output, errors.New("another topic than the one that is read"))
	}
	if input != "" && input == letters {
		p.Bad("dead-letters", letters, errors.New("another topic than the one that is read"))
	}
	return kafka.Source(cluster, kafka.Named(input), codec.Codec[Click](whole{value}), opts...)
}

// start reads where the very first run begins.
func start(p *cli.Params) kafka.Start {
	v := p.String("start", "earliest", "where the first run begins: earliest, latest, committed (of the job's consumer group, else earliest), "+
		"or a time, in RFC 3339 or milliseconds since 1970")
	switch v {
	case "earliest":
		return kafka.Earliest()
	case "latest":
		return kafka.Latest()
	case "committed":
		return kafka.AtCommitted(kafka.Earliest())
	}
	var at When
	if err := at.UnmarshalJSON(strconv.AppendQuote(nil, v)); err != nil {
		p.Bad("start", v, errors.New("earliest, latest, committed, or a time such as 2026-03-01T12:00:00Z or 1772366400000"))
	}
	return kafka.AtTime(at.Time)
}

// build declares the job: clicks, each once if that is asked for, counted by ad and
// minute; and a sink for each place where the counts are wanted.
func build(clicks weir.Source[Click], c settings) *weir.Job {
	job := weir.NewJob("kafka-clicks")
	if c.deadLetters != "" {
		job.DeadLetters("dead-letters", kafka.DeadLetters(c.cluster, c.deadLetters, c.topics...))
	}
	all := job.From("clicks", clicks, weir.EventTime(func(c Click) time.Time { return c.At.Time }, c.outOfOrder))
	if c.dedup != 0 { // a negative one is refused as declared
		all = all.KeyBy(func(c Click) string { return c.ID }).Distinct("seen", c.dedup).Stream
	}
	minutes := all.KeyBy(func(c Click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute, window.Lateness(c.lateness), window.EachBarrier)).
		Count("clicks-per-minute")
	if c.output != "" {
		minutes.To("counts", kafka.Sink(c.cluster, c.output, encodeCount, c.topics...))
	}
	if c.db != "" {
		minutes.Map(adMinute).To("ad-minute", sqlite.Upsert[AdMinute](c.db, "ad_minute", "ad_id", "minute"))
	}
	if c.files != "" {
		minutes.Map(adMinute).To("minute-files", file.JSONLines[AdMinute](c.files))
	}
	return job
}
