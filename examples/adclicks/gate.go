package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirstream/weir"
)

// gate is a source of clicks that holds at chosen records until it is told to
// go on, so that the demo can kill the process exactly there.
type gate struct {
	weir.Source[Click]
	first int64 // records before the position that the split is opened at
	read  atomic.Int64
	mu    struct {
		sync.Mutex
		limit int64
		ready chan struct{}
	}
}

func newGate(src weir.Source[Click], limit int64) *gate {
	g := &gate{Source: src}
	g.mu.limit, g.mu.ready = limit, make(chan struct{})
	return g
}

// until lets the source read up to record limit; negative: to its end.
func (g *gate) until(limit int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.limit = limit
	close(g.mu.ready)
	g.mu.ready = make(chan struct{})
}

// Open implements weir.Source.
func (g *gate) Open(ctx context.Context, split string, at []byte) (weir.Reader[Click], error) {
	r, err := g.Source.Open(ctx, split, at)
	if err != nil {
		return nil, err
	}
	return &gatedReader{Reader: r, g: g}, nil
}

// Locate implements weir.Locator.
func (g *gate) Locate(split string, mark int64) string {
	return g.Source.(weir.Locator).Locate(split, mark)
}

type gatedReader struct {
	weir.Reader[Click]
	g    *gate
	wait chan struct{}
}

// Read reads no further than the gate.
func (r *gatedReader) Read(dst []Click, limit int) ([]Click, bool, error) {
	r.g.mu.Lock()
	until, ready := r.g.mu.limit, r.g.mu.ready
	r.g.mu.Unlock()
	if until >= 0 {
		limit = int(min(int64(limit), until-r.g.first-r.g.read.Load()))
	}
	if limit <= 0 {
		r.wait = ready
		return dst, false, nil
	}
	n := len(dst)
	dst, end, err := r.Reader.Read(dst, limit)
	r.g.read.Add(int64(len(dst) - n))
	r.wait = nil
	return dst, end, err
}

// Ready implements weir.Reader.
func (r *gatedReader) Ready() <-chan struct{} {
	if r.wait != nil {
		return r.wait
	}
	return r.Reader.Ready()
}

// Marks implements weir.Marker.
func (r *gatedReader) Marks() []int64 { return r.Reader.(weir.Marker).Marks() }
