package kafka

import (
	"context"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// What a message costs in the sink, beside the client alone: an epoch of 100,000
// messages of 100 bytes, from a writer and from a loop by hand.
func BenchmarkEpoch(b *testing.B) {
	const epoch = 100_000
	brokers := kafkatest.Brokers(b)
	recs, at := make([]int64, 256), make([]int64, 256)
	value := make([]byte, 84)
	b.Run("sink", func(b *testing.B) {
		topic := kafkatest.Topic(b, brokers, 4)
		sink := Sink(NewCluster(brokers), topic, func(rec *int64, m *Message) error {
			m.Key = strconv.AppendInt(m.Key, *rec, 16)
			m.Value = append(m.Value, value...)
			return nil
		})
		p, err := sink.Connect(b.Context(), []string{"out"})
		check(b, err)
		defer p.Close()
		_, err = p.Fence(b.Context(), weir.Fence{Job: weir.JobID{Name: topic, UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true})
		check(b, err)
		o, err := sink.Open(b.Context(), p, "out")
		check(b, err)
		w, parent, n := o.Writer(0), weir.CheckpointID{}, int64(0)
		run := func() {
			for i := int64(0); i < epoch; i += int64(len(recs)) {
				for j := range recs {
					recs[j] = i + int64(j)
				}
				check(b, w.Write(recs, at))
			}
			n++
			check(b, w.Seal(n))
			_, err := p.Prepare(b.Context(), n)
			check(b, err)
			id := weir.CheckpointID{Slot: n + 1}
			check(b, p.Commit(b.Context(), weir.Commit{Epoch: n, ID: id, Parent: parent}))
			check(b, p.(weir.Revealer).Visible(b.Context(), id))
			parent = id
		}
		run()
		run()
		b.ReportAllocs()
		for b.Loop() {
			run()
		}
	})
	b.Run("client", func(b *testing.B) {
		topic := kafkatest.Topic(b, brokers, 4)
		o := &outputs{c: NewCluster(brokers), sending: new(shared).agreed()}
		cl, err := o.producer(topic)
		check(b, err)
		defer cl.Close()
		ctx := context.Background()
		pool := make(chan *kgo.Record, 2*maxBufferedRecords)
		for range cap(pool) {
			pool <- &kgo.Record{Topic: topic, Partition: -1, Key: make([]byte, 0, 16), Value: value}
		}
		var failed error
		done := func(r *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
			pool <- r
		}
		run := func() {
			check(b, cl.BeginTransaction())
			for i := range epoch {
				r := <-pool
				r.Partition, r.Context = -1, nil
				r.Key = strconv.AppendInt(r.Key[:0], int64(i), 16)
				cl.Produce(ctx, r, done)
			}
			check(b, cl.Flush(ctx))
			check(b, failed)
			check(b, cl.EndTransaction(ctx, kgo.TryCommit))
		}
		run()
		run()
		b.ReportAllocs()
		for b.Loop() {
			run()
		}
	})
}
