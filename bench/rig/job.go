package rig

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/codec/fastjson"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/window"
)

// clickCodec is the codec of both sides.
func clickCodec(s Spec) codec.Codec[Click] {
	if s.DefaultCodec {
		return codec.JSON[Click]()
	}
	return fastjson.JSON[Click]()
}

// runJob runs one lap as a job.
func runJob(ctx context.Context, s Spec, m *meter) error {
	job := weir.NewJob(s.Name)
	cluster := kafka.NewCluster(s.Brokers)
	switch s.Work {
	case Copy:
		copyJob(job, cluster, s)
	case Count, Dedup:
		countJob(job, cluster, s)
	default:
		return fmt.Errorf("there is no work named %q", s.Work)
	}
	running := job.Start(context.WithoutCancel(ctx), weir.StateDir(filepath.Join(s.StateDir, "state")), weir.Interval(s.Interval), weir.Parallelism(s.Tasks),
		weir.OnStart(func(weir.Started) { m.begin() }),
		weir.OnCheckpoint(func(c weir.Checkpoint) {
			if c.Records > 0 {
				m.commit(c.Records)
			}
		}))
	defer context.AfterFunc(ctx, running.Stop)()
	return running.Wait()
}

func sourceOptions(s Spec) []kafka.SourceOption {
	if s.Follow {
		return nil
	}
	return []kafka.SourceOption{kafka.Bounded()}
}

func sinkOptions(s Spec) []kafka.SinkOption {
	opts := []kafka.SinkOption{kafka.Compression(kafka.LZ4)}
	if s.AtLeastOnce {
		opts = append(opts, kafka.AtLeastOnce())
	}
	return opts
}

// countJob counts clicks by ad and minute, each id once or each click.
func countJob(job *weir.Job, cluster *kafka.Cluster, s Spec) {
	clicks := job.From("clicks", kafka.Source(cluster, kafka.Named(s.Input), clickCodec(s), sourceOptions(s)...),
		weir.EventTime(func(c Click) time.Time { return time.UnixMilli(c.At) }, outOfOrder))
	if s.Work == Dedup {
		clicks = clicks.KeyBy(func(c Click) string { return c.ID }).Distinct("seen", dedup).Stream
	}
	clicks.KeyBy(func(c Click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute, window.Lateness(lateness), window.EachBarrier)).
		Count("clicks-per-minute").
		To("counts", kafka.Sink(cluster, s.Output, func(r *weir.Result[string, int64], m *kafka.Message) error {
			minute := r.Start.UTC()
			m.Key = appendCountKey(m.Key, r.Key, minute)
			m.Value = appendCountValue(m.Value, r.Key, minute, r.Value)
			return nil
		}, sinkOptions(s)...))
}

// message is a message on its way through the copy. Its key and its value lie one
// behind the other.
type message struct {
	bytes   []byte
	key     int // bytes of the key, which come first
	at      time.Time
	headers []kafka.Header
}

// pieces hand out memory for messages, which have to be copied from what the client
// fetched: one allocation for hundreds of them. A piece is free when its last
// message is.
type pieces struct{ pool sync.Pool }

type piece struct{ left []byte }

const pieceBytes = 64 << 10

func (p *pieces) take(n int) []byte {
	c, ok := p.pool.Get().(*piece)
	if !ok {
		c = &piece{}
	}
	if len(c.left) < n {
		c.left = make([]byte, max(pieceBytes, n))
	}
	b := c.left[:n:n]
	c.left = c.left[n:]
	p.pool.Put(c)
	return b
}

func copyJob(job *weir.Job, cluster *kafka.Cluster, s Spec) {
	var mem pieces
	in := kafka.SourceOf(cluster, kafka.Named(s.Input), func(m *kafka.Message, rec *message) error {
		b := mem.take(len(m.Key) + len(m.Value))
		copy(b, m.Key)
		copy(b[len(m.Key):], m.Value)
		*rec = message{bytes: b, key: len(m.Key), at: m.Time}
		for _, h := range m.Headers {
			rec.headers = append(rec.headers, kafka.Header{Key: h.Key, Value: slices.Clone(h.Value)})
		}
		return nil
	}, sourceOptions(s)...)
	job.From("messages", in).To("copy", kafka.Sink(cluster, s.Output, func(rec *message, m *kafka.Message) error {
		m.Key, m.Value = rec.bytes[:rec.key:rec.key], rec.bytes[rec.key:]
		m.Headers, m.Time = rec.headers, rec.at
		return nil
	}, sinkOptions(s)...))
}
