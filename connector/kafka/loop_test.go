package kafka_test

import (
	"errors"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// TestLoop: a job that reads what it writes is refused, however it came to that, and
// has written nothing. Two jobs may share a cluster and hand results on.
func TestLoop(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for _, c := range []struct {
		name    string
		pattern bool
		letters bool
	}{{"named", false, false}, {"matching", true, false}, {"dead letters", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			in, out := kafkatest.Topic(t, brokers, 1), kafkatest.Topic(t, brokers, 1)
			kafkatest.Produce(t, brokers, record(in, 0, "a"))
			cluster := kafka.NewCluster(brokers)
			topics := kafka.Named(in)
			if c.pattern {
				topics = kafka.Matching("(" + in + "|" + out + ")")
			}
			job := weir.NewJob(kafkatest.Name(t))
			counts, letters := in, out
			if c.pattern || c.letters {
				counts, letters = out, in
			}
			if c.letters {
				job.DeadLetters("dead", kafka.DeadLetters(cluster, letters))
			}
			job.From("in", kafka.Source(cluster, topics, text(), kafka.StopAtEnd())).To("out", kafka.Sink(cluster, counts, copied))
			err := job.Run(t.Context(), weir.StateDir(t.TempDir()))
			wantError(t, err, "without end", in)
			if !errors.Is(err, weir.ErrRefused) {
				t.Errorf("the job isn't ended for good: %v", err)
			}
			if n := len(kafkatest.ReadCommitted(t, brokers, in)) + len(kafkatest.ReadCommitted(t, brokers, out)); n != 1 {
				t.Errorf("%d messages are there, want the one of the input", n)
			}
		})
	}
	a, b, end := kafkatest.Topic(t, brokers, 1), kafkatest.Topic(t, brokers, 1), kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, record(a, 0, "a"))
	cluster := kafka.NewCluster(brokers)
	for _, step := range [][2]string{{a, b}, {b, end}} {
		job := weir.NewJob(kafkatest.Name(t))
		job.From("in", kafka.Source(cluster, kafka.Named(step[0]), text(), kafka.StopAtEnd())).To("out", kafka.Sink(cluster, step[1], copied))
		if err := job.Run(t.Context(), weir.StateDir(t.TempDir())); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(kafkatest.ReadCommitted(t, brokers, end)); n != 1 {
		t.Errorf("%d messages have come through both jobs, want 1", n)
	}
}

func copied(rec *string, m *kafka.Message) error {
	m.Value = append(m.Value, *rec...)
	return nil
}
