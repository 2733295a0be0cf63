package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/internal/sys"
)

// watchConfig is what a watch looks at.
type watchConfig struct {
	path  string
	f     *os.File
	info  fs.FileInfo // of f
	clock sys.Clock
	idle  time.Duration        // without news, until the file is idle
	every func() time.Duration // the longest wait between two looks
}

// watch looks at a file in a goroutine of its own, from when its reader has
// reached the end until there is news. It belongs to the reader, which ends it
// by close; arm, quiet, status and atEnd are called by the reader's goroutine.
type watch struct {
	watchConfig
	ready chan struct{} // a token while the reader should read again
	asks  chan ask
	stop  chan struct{}
	wg    sync.WaitGroup

	armed bool      // the reader has read all there was
	quiet time.Time // since when nothing has been written
	read  int64     // how far, when the end was last reached
	size  int64     // of the file when it was last seen
	found atomic.Bool
	idled atomic.Bool
}

// ask is up to where a file was read, and when it will be idle.
type ask struct {
	size int64
	idle time.Time
}

// newWatch returns the watch of a file that is read from a position on.
func newWatch(c watchConfig, read int64) *watch {
	w := &watch{watchConfig: c, ready: make(chan struct{}, 1), asks: make(chan ask, 1), stop: make(chan struct{}),
		quiet: c.clock.Now(), read: read, size: c.info.Size()}
	w.wg.Go(func() {
		for {
			select {
			case a := <-w.asks:
				w.look(a)
			case <-w.stop:
				return
			}
		}
	})
	return w
}

// close ends the goroutine. It may be repeated.
func (w *watch) close() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.wg.Wait()
}

// look waits for news.
func (w *watch) look(a ask) {
	for d := minPoll; ; d = min(2*d, max(w.every(), minPoll)) {
		select {
		case <-w.clock.After(d):
		case <-w.stop:
			return
		}
		// Whatever is wrong with the file, the reader finds it as well.
		if info, err := os.Stat(w.path); err != nil || info.Size() != a.size || !os.SameFile(info, w.info) {
			w.found.Store(true)
			w.wake()
			return
		}
		if !w.idled.Load() && !w.clock.Now().Before(a.idle) {
			w.idled.Store(true)
			w.wake()
		}
	}
}

// wake makes the reader's task read again, or at least ask for the status.
func (w *watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// arm says that the reader has read all up to size.
func (w *watch) arm(size int64) {
	if w.armed {
		return
	}
	if size > w.read {
		w.read, w.quiet = size, w.clock.Now()
		w.idled.Store(false)
	}
	w.armed = true
	w.asks <- ask{size, w.quiet.Add(w.idle)} // the goroutine has taken the last one
}

// waits reports whether there is nothing to read. It costs next to nothing:
// while other splits are busy it is asked again and again.
func (w *watch) waits() bool {
	if w.armed && w.found.CompareAndSwap(true, false) {
		w.armed = false
	}
	return w.armed
}

// drained reports whether all was read that was there at the last look, and
// whether the file counts as idle.
func (w *watch) drained() (all, idle bool) {
	all = w.armed && !w.found.Load()
	return all, all && w.idled.Load()
}

// atEnd says what it means that reading has come to the end of the file: io.EOF
// if it may go on there.
func (w *watch) atEnd(read int64) error {
	now, err := w.f.Stat()
	if err != nil {
		return err
	}
	if had := max(read, w.size); now.Size() < had {
		return errTruncated(w.path, now.Size(), had)
	}
	w.size = now.Size()
	named, err := os.Stat(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errGone(w.path)
	case err != nil:
		return fmt.Errorf("look at the file under its name: %w", err)
	case !os.SameFile(named, w.info):
		return errReplaced(w.path)
	}
	return io.EOF
}
