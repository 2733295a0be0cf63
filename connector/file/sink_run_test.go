package file_test

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/file"
)

// sale is what the tests of the sink write.
type sale struct {
	Item  string  `json:"item"`
	Cents float64 `json:"cents"`
}

// run is one incarnation of a job with one sink and two tasks.
type run[R any] struct {
	p       weir.Participant
	writers []weir.Writer[R]
	parent  weir.CheckpointID
	epoch   int64
}

func fenceOf(n int64) weir.Fence {
	return weir.Fence{Job: weir.JobID{Name: "job", UUID: "u1"}, By: weir.Incarnation{Number: n, Nonce: "nonce"}, Create: n == 1}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin starts incarnation n, from nothing if n is 1.
func begin[R any](t *testing.T, s weir.Sink[R], n int64) *run[R] {
	t.Helper()
	r, err := tryBegin(t.Context(), s, fenceOf(n), "sales")
	check(t, err)
	t.Cleanup(func() { check(t, r.p.Close()) })
	return r
}

func tryBegin[R any](ctx context.Context, s weir.Sink[R], f weir.Fence, id string) (*run[R], error) {
	p, err := s.Connect(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	r := &run[R]{p: p}
	ledgers, err := p.Fence(ctx, f)
	if err == nil {
		r.parent = ledgers[id].ID
		r.epoch = r.parent.Slot
		err = r.open(ctx, s, id)
	}
	if err != nil {
		_ = p.Close() // the first error is the one that is told
		return nil, err
	}
	return r, nil
}

func (r *run[R]) open(ctx context.Context, s weir.Sink[R], id string) error {
	o, err := s.Open(ctx, r.p, id)
	if err == nil {
		r.writers = []weir.Writer[R]{o.Writer(0), o.Writer(1)}
	}
	return err
}

func (r *run[R]) write(t *testing.T, task int, recs ...R) {
	t.Helper()
	check(t, r.writers[task].Write(recs, make([]int64, len(recs))))
}

// prepare ends the epoch and returns what is to be committed.
func (r *run[R]) prepare(ctx context.Context) (weir.Commit, error) {
	r.epoch++
	for _, w := range r.writers {
		if err := w.Seal(r.epoch); err != nil {
			return weir.Commit{}, err
		}
	}
	staged, err := r.p.Prepare(ctx, r.epoch)
	c := weir.Commit{Epoch: r.epoch, ID: id(r.epoch), Parent: r.parent, Staged: staged}
	return c, err
}

func id(epoch int64) weir.CheckpointID {
	return weir.CheckpointID{Slot: epoch, Sum: sha256.Sum256([]byte{byte(epoch)})}
}

func (r *run[R]) commit(t *testing.T) {
	t.Helper()
	c, err := r.prepare(t.Context())
	check(t, err)
	check(t, r.p.Commit(t.Context(), c))
	r.parent = c.ID
}

// visible is what a reader of the folder sees: the names of the files.
func visible(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(under(t, dir), func(name string) bool { return name[0] == '.' || name[0] == '_' })
}

// under lists the files below a folder.
func under(t *testing.T, dir string) []string {
	t.Helper()
	names := []string{}
	check(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	}))
	return names
}

// staged lists the parts that aren't published.
func staged(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(under(t, dir), func(name string) bool { return !strings.Contains(name, "/stage/") })
}

func sales(dir string) file.Sink[sale] { return file.JSONLines[sale](dir) }
