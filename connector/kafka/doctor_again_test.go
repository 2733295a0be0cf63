package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// lateSink is examined when the job has gone on since the store was read.
type lateSink struct {
	sink[string]
	meanwhile func()
}

func (s lateSink) Examine(ctx context.Context, x weir.Examination) ([]weir.Finding, error) {
	s.meanwhile()
	return s.sink.Examine(ctx, x)
}

func TestDoctorBesideAJobThatGoesOn(t *testing.T) {
	for name, started := range map[string]bool{"that had checkpoints": true, "that starts for the first time": false} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t).makes()
			if started {
				p.run()
			}
			c := NewCluster(p.brokers)
			encode := func(s *string, m *Message) error { m.Value = append(m.Value, *s...); return nil }
			out := lateSink{Sink(c, p.out, encode, p.sink...).(sink[string]), func() {
				p.produce(0, "later")
				p.run()
			}}
			job := weir.NewJob(p.name)
			job.From("in", Source(c, Named(p.in), codec.String())).To("out", out)
			found, err := job.Doctor(t.Context(), p.opts...)
			if err != nil {
				t.Fatal(err)
			}
			d := diagnosis(found)
			d.healthy(t)
			d.want(t, weir.LevelOK, "topic "+p.name+".ckpt", "the state directory has that one")
		})
	}
}

func TestDoctorOfOutputThatIsGone(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	refused := func() {
		t.Helper()
		if err := p.job().Run(t.Context(), p.opts...); !errors.Is(err, weir.ErrRefused) {
			t.Fatalf("run: %v", err)
		}
	}
	p.delete(p.out)
	if f := p.examine().want(t, weir.LevelProblem, "topic "+p.out, "is gone", "output up to checkpoint"); !strings.Contains(f.Fix, "--start-over") {
		t.Errorf("what to do: %s", f.Fix)
	}
	refused()
	kafkatest.CreateTopic(t, p.brokers, p.out, 2)
	p.examine().want(t, weir.LevelProblem, "topic "+p.out, "was made anew", "output up to checkpoint")
	refused()
	p.examine(weir.StartOver()).healthy(t)
}

// What a sink that the job no longer has left open keeps it from starting, too.
func TestDoctorOfASinksFormerTopic(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	former := p.out
	p.out += ".new"
	end := kafkatest.ProduceIn(t, p.brokers, p.name+"-0-a", &kgo.Record{Topic: former, Value: []byte("x")})
	p.examine().want(t, weir.LevelOK, "open transaction", p.name+"-0-a", former)
	end(kgo.TryAbort)
}

// The store is read although the job can't go on from it as it is declared.
func TestDoctorOfAJobThatHasChanged(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	c := NewCluster(p.brokers)
	job := weir.NewJob(p.name)
	encode := func(s *string, m *Message) error { m.Value = append(m.Value, *s...); return nil }
	job.From("another", Source(c, Named(p.in), codec.String())).To("out", Sink(c, p.out, encode, p.sink...))
	found, err := job.Doctor(t.Context(), p.opts...)
	if err != nil {
		t.Fatal(err)
	}
	d := diagnosis(found)
	if f := d.want(t, weir.LevelProblem, "state directory"); !strings.Contains(f.Fix, "plan") {
		t.Errorf("what to do: %s", f.Fix)
	}
	d.want(t, weir.LevelOK, "topic "+p.name+".ckpt", "the state directory has that one")
}

func TestDoctorOfAFirstStartThatFailed(t *testing.T) {
	p := newPatient(t)
	if err := p.job().Run(t.Context(), p.opts...); !errors.Is(err, weir.ErrRefused) { // there is no topic to write to
		t.Fatalf("run: %v", err)
	}
	p.makes()
	d := p.examine()
	d.healthy(t)
	d.want(t, weir.LevelOK, "topic "+p.name+".ckpt", "it is claimed by this state directory, and nothing is committed yet")
	p.run()
}

// The offsets of a source with a group of its own are kept elsewhere than those of
// the job's group.
func TestDoctorLooksWhereEachGroupsOffsetsAre(t *testing.T) {
	const offsets = "__consumer_offsets"
	fake := kafkatest.NewFake(t, kfake.SeedTopics(50, offsets), kfake.SeedTopics(1, "in"))
	c := NewCluster(fake.ListenAddrs())
	_, err := c.examine(t.Context(), weir.Examination{Job: "job"}, func(ctx context.Context, e *exam) {
		e.examineInputs(ctx, inputs{sourceConfig{topics: Named("in")}, true, "lag"})
		in, err := e.ownPartitions(ctx, nil)
		if err != nil {
			t.Error(err)
		}
		for _, group := range []string{"lag", "job"} {
			if _, ok := in[offsets][homeOf(group, 50)]; !ok {
				t.Errorf("partitions %v don't hold group %s", in[offsets], group)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
