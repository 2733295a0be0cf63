package control

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sys"
)

// slowStore keeps the first segment that is read from being opened until it is let go.
type slowStore struct {
	*store
	once    sync.Once
	waiting chan struct{} // closed when a merge wants to read
	let     chan struct{}
}

func (s *slowStore) Open(name string) (sys.File, error) {
	if strings.HasPrefix(name, log.SegmentPrefix) {
		s.once.Do(func() {
			close(s.waiting)
			<-s.let
		})
	}
	return s.store.Open(name)
}

// TestMergeOvertaken lets a merge take so long that its chain grows over all
// limits, a new base is saved, and what the merge reads is retired meanwhile: that
// is no damage.
func TestMergeOvertaken(t *testing.T) {
	for _, tt := range []struct {
		name string
		base bool // a new base has come, and the sections were retired
	}{{"by a new base", true}, {"by nothing", false}} {
		bubble(t, tt.name, func(t *testing.T) {
			w := newWorld()
			db := w.database("db", transactional, "counts")
			slow := &slowStore{store: w.store, waiting: make(chan struct{}), let: make(chan struct{})}
			w.files = slow
			r := w.run(t, []*database{db}, func(c *Config) {
				c.Retain, c.Limits = 1, epoch.Limits{Slack: 1, Parts: 2}
			})
			f := r.started()
			next := func() {
				f.read(f.position + 1)
				r.checkpoint()
				synctest.Wait()
			}
			for range 4 {
				next()
			}
			select {
			case <-slow.waiting:
			default:
				t.Fatal("no merge is at work")
			}
			if tt.base {
				for range 12 {
					next()
				}
				if len(f.full) == 0 {
					t.Fatal("no base was saved")
				}
			} else {
				for _, name := range w.store.names(t, log.SegmentPrefix) {
					if err := w.store.Files.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			close(slow.let)
			synctest.Wait()
			if !tt.base {
				if err := r.wait(); !errors.Is(err, log.ErrCorrupt) {
					t.Errorf("what a checkpoint needs is gone, and the run ended with: %v", err)
				}
				return
			}
			next()
			r.stop()
		})
	}
}
