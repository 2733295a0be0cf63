package kafka

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/kafkalab"
)

// A broker that is killed right after it has answered EndTxn can lose the markers of
// that transaction. The next start either finds all of the epoch, or it refuses to go
// on: it names what hangs, and has destroyed no evidence. A wrong result is never seen.
func TestLostMarkers(t *testing.T) {
	kafkatest.RealOnly(t, "kfake writes markers before it answers; this test kills a broker of its own")
	kafkalab.Need(t)
	lab, err := kafkalab.Start(t.Context(), kafkalab.Options{Dir: filepath.Join(t.TempDir(), "kafka")})
	check(t, err)
	t.Cleanup(func() { check(t, lab.Close()) })
	lost := 0
	for try := range 2 {
		sc := &scene{t: t, brokers: lab.Brokers(), job: weir.JobID{Name: kafkatest.Name(t), UUID: "run-1"}}
		sc.topic, sc.cl = sc.job.Name+".out", kafkatest.Client(t, sc.brokers)
		kafkatest.CreateTopic(t, sc.brokers, sc.topic, 2)
		s := storyOn(sc)
		check(t, s.live(t.Context(), 0, nil))
		ends := 0
		err := s.live(t.Context(), 1, func(name string, _ []byte, do func() error) error {
			err := do()
			if name != "EndTxn" {
				return err
			}
			if ends++; ends == 2 { // the first is the claim's
				check(t, errors.Join(err, lab.Kill(t.Context())))
				return errKilled
			}
			return err
		})
		if !errors.Is(err, errKilled) {
			t.Logf("the worker ended with %v", err)
		}
		check(t, lab.StartAll(t.Context()))
		if s.lost(try) {
			lost++
		}
	}
	t.Logf("markers were lost in %d of 2 tries", lost)
}

var errKilled = errors.New("the broker was killed")

// lost starts the job again, and reports whether that was refused.
func (s *story) lost(try int) bool {
	s.t.Helper()
	s.cl = kafkatest.Client(s.t, s.brokers) // with no connection to the broker that is dead
	ids := (&Cluster{}).txids(s.job.Name)
	before := s.told(ids[:]...)
	again := s.live(s.t.Context(), storyEpochs, nil)
	if again == nil {
		s.check(storyEpochs)
		return false
	}
	says(s.t, again, weir.ErrRefused, "hangs", "the coordinator of "+s.job.Name+"-0-", "says CompleteCommit", "doctor")
	if where := fmt.Sprintf(`%s(\.out|\.ckpt)/\d from offset \d+`, regexp.QuoteMeta(s.job.Name)); !regexp.MustCompile(where).MatchString(again.Error()) {
		s.t.Errorf("%v\nnames no partition with an offset", again)
	}
	s.t.Logf("try %d: %v", try, again)
	after := s.told(ids[:]...)
	for _, id := range ids {
		if b, a := before[id], after[id]; b.State != a.State || b.ProducerEpoch != a.ProducerEpoch || b.ProducerID != a.ProducerID {
			s.t.Errorf("the coordinator said %+v of %s, and says %+v now: its evidence is destroyed", b, id, a)
		}
	}
	for _, r := range s.visible() { // some partitions may have their markers, or none
		if !strings.HasPrefix(r, "e1-") {
			s.t.Errorf("%s is visible, and its epoch was never committed", r)
		}
	}
	return true
}

// told is what the coordinators say, once they are back.
func (s *scene) told(ids ...string) kadm.DescribedTransactions {
	s.t.Helper()
	for {
		told, err := kadm.NewClient(s.cl).DescribeTransactions(s.t.Context(), ids...)
		for _, d := range told {
			err = errors.Join(err, d.Err)
		}
		if err == nil {
			return told
		}
		if !temporary(err) {
			s.t.Fatal(err)
		}
	}
}

// visible are the messages that a reader sees, whatever hangs.
func (s *scene) visible() []string {
	s.t.Helper()
	var out []string
	for _, r := range kafkatest.ReadCommitted(s.t, s.brokers, s.topic) {
		out = append(out, string(r.Key))
	}
	return out
}
