package control

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/weirstream/weir/internal/data"
)

// flow is a job of two tasks: in/0 reads numbers from one split, count/0 counts
// them and gives the count to every sink. The test decides when it reads.
type flow struct {
	w     *world
	conns []*connection
	parts []*fakePart

	mu       sync.Mutex
	ctl      data.Control
	splits   []string
	position int64
	count    int64
	saved    int64 // of count, by the last barrier
	ended    bool
	held     []bool
	barriers []int64
	full     []int64 // barriers at which count saved everything
	stopped  bool
	closed   bool
	mute     bool // acknowledges nothing
	slow     bool // one task keeps probes back
	schema   string
}

func (f *flow) Open(_ context.Context, from data.Restorer) ([]data.SplitState, error) {
	f.w.effect("open", func() error { return nil })
	for _, s := range f.splits {
		st, ok := from.Split("in", s)
		if ok && s == f.splits[0] {
			f.position = int64(binary.LittleEndian.Uint64(st.Position))
		}
	}
	secs, err := from.Sections("count")
	if err != nil {
		return nil, err
	}
	for _, s := range secs {
		f.count += int64(binary.LittleEndian.Uint64(s.Bytes)) // a base and what each epoch added
	}
	f.saved = f.count
	return f.states(), nil
}

func (f *flow) states() []data.SplitState {
	var out []data.SplitState
	for _, s := range f.splits {
		out = append(out, data.SplitState{Source: "in", Split: s, Ended: f.ended,
			Position: binary.LittleEndian.AppendUint64(nil, uint64(f.position)), Records: f.position})
	}
	return out
}

func (f *flow) Start(ctl data.Control) {
	f.w.effect("start", func() error { return nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctl = ctl
}

// read lets the tasks process records up to a position.
func (f *flow) read(to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count += to - f.position
	f.position = to
}

// end lets the split end.
func (f *flow) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.ctl.Ended("in/0")
}

func (f *flow) Barrier(epoch int64, full map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barriers = append(f.barriers, epoch)
	if full["count"] {
		f.full = append(f.full, epoch)
	}
	if f.mute {
		return
	}
	for _, c := range f.conns {
		c.seal(epoch, f.count)
	}
	value := f.count - f.saved
	if full["count"] {
		value = f.count
	}
	f.saved = f.count
	p := &fakePart{value: value, info: data.PartInfo{Step: "count", Full: full["count"], Entries: 1, Live: 1,
		Clocks: []data.Clock{{From: 0, To: 8, At: f.position}}, Key: "string", Value: f.schema}}
	f.parts = append(f.parts, p)
	f.ctl.Acked(data.Ack{Epoch: epoch, Task: "in/0", Splits: f.states()})
	f.ctl.Acked(data.Ack{Epoch: epoch, Task: "count/0", Parts: []data.Part{p}})
}

func (f *flow) Hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, on)
}

func (f *flow) Probe(n int64) {
	f.ctl.Probed(n)
	if !f.slow {
		f.ctl.Probed(n)
	}
}

func (f *flow) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
}

func (f *flow) Wait() {}

func (f *flow) Close() error {
	f.closed = true
	return nil
}

func (f *flow) Tasks() int   { return 2 }
func (f *flow) Sources() int { return 1 }

func (f *flow) Growing() bool { return false }

type fakePart struct {
	info     data.PartInfo
	value    int64
	mu       sync.Mutex
	released int
}

func (p *fakePart) Info() data.PartInfo { return p.info }

func (p *fakePart) Encode(w io.Writer) error {
	_, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(p.value)))
	return err
}

func (p *fakePart) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released++
}
