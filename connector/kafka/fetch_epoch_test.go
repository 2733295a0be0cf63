package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
)

// A log that was cut below what was read, and has grown again since: another
// leader tells so, while the job runs and when it starts.
func TestTruncatedLog(t *testing.T) {
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprintf("accepted %t", accept), func(t *testing.T) {
			var opts []SourceOption
			if accept {
				opts = append(opts, AcceptLoss())
			}
			l := newMadeLog(t, ofValues(7, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
			r, told := l.open(t, nil, opts...)
			if got, err := drain(t, r); err != nil || len(got) != 10 {
				t.Fatalf("read %v, error %v", got, err)
			}
			at := r.Position()
			l.cut(t, func() {})
			again, toldAgain := l.open(t, at, opts...)
			for name, x := range map[string]struct {
				r    weir.Reader[string]
				told func() string
			}{"running": {r, told}, "started": {again, toldAgain}} {
				var got []string
				var err error
				for err == nil && len(got) < 3 {
					if got, _, err = x.r.Read(got, 10); err == nil && len(got) < 3 {
						<-x.r.Ready()
					}
				}
				text := x.told()
				if !accept {
					if !errors.Is(err, weir.ErrRefused) {
						t.Fatalf("%s: read %v, error %v", name, got, err)
					}
					text = err.Error()
				} else if err != nil || !slices.Equal(got, []string{"6", "7", "20"}) {
					t.Errorf("%s: read %v, error %v", name, got, err)
				}
				for _, part := range []string{"topic " + l.topic, "partition 0", "offsets 6 to 9, 4 in all", "truncated"} {
					if !strings.Contains(text, part) {
						t.Errorf("%s: %q doesn't say %q", name, text, part)
					}
				}
			}
		})
	}
}

// cut replaces what a log of offsets 0 to 9 holds from 6 on, under another leader.
func (l *madeLog) cut(t *testing.T, trouble func()) {
	t.Helper()
	l.change(func() {
		l.batches = [][]byte{ofValues(7, 5, 0, 1, 2, 3, 4, 5), ofValues(8, 20, 6, 7, 20)}
		l.end, l.stable, l.epochs = 21, 21, map[int32]int64{7: 6, 8: 21}
		l.faults = slices.Repeat([]*kerr.Error{kerr.NotLeaderForPartition}, 10_000) // nobody is the leader until the new one is
		trouble()
	})
	if err := l.c.MoveTopicPartition(l.topic, 0, (l.c.LeaderFor(l.topic, 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	l.change(func() { l.faults = l.faults[:1] }) // once more, for who has asked in between
}

// A question about the new leader that isn't answered at first is asked again, and
// nothing is read from that leader before: by a job that runs, and by one that starts.
func TestTruncatedLogInTrouble(t *testing.T) {
	twice := func(err *kerr.Error) []*kerr.Error { return []*kerr.Error{err, err} }
	troubles := map[string]func(*madeLog){"left out": func(l *madeLog) { l.leaveOut = 2 }}
	for _, err := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.KafkaStorageError, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.UnknownServerError} {
		troubles["epoch "+err.Message] = func(l *madeLog) { l.epochFaults = twice(err) }
		troubles["end "+err.Message] = func(l *madeLog) { l.listFaults = twice(err) }
	}
	for name, trouble := range troubles {
		for _, started := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, started %t", name, started), func(t *testing.T) {
				l := newMadeLog(t, ofValues(7, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
				r, _ := l.open(t, nil)
				if got, err := drain(t, r); err != nil || len(got) != 10 {
					t.Fatalf("read %v, error %v", got, err)
				}
				if started {
					at := r.Position()
					if err := r.Close(); err != nil {
						t.Fatal(err)
					}
					l.cut(t, func() {})
					r, _ = l.open(t, at)
					l.change(func() { trouble(l) })
				} else {
					l.cut(t, func() { trouble(l) })
				}
				var got []string
				var err error
				for err == nil && len(got) == 0 {
					if got, _, err = r.Read(got, 10); err == nil && len(got) == 0 {
						<-r.Ready()
					}
				}
				if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "offsets 6 to 9, 4 in all") {
					t.Errorf("read %v, error %v", got, err)
				}
				l.change(func() {
					if len(l.epochFaults)+len(l.listFaults)+l.leaveOut > 0 {
						t.Error("the trouble wasn't met")
					}
				})
			})
		}
	}
}
