package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

// reader decodes the lines of one file.
type reader[T any] struct {
	*scanner
	codec    codec.Codec[T]
	at       []byte // the position that it was opened at, which stands for from
	from     int64
	pos      int64   // behind the last record that was returned
	marks    []int64 // where the records of the last Read begin
	rejected []weir.Rejected
	again    bool // decode stopped for a record that was set aside
	more     bool // it stopped in a long line
	ended    bool
	err      error // what stopped reading
	done     func()
}

// Read never waits: all there is to wait for in a regular file is the disk.
func (r *reader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	r.marks, r.rejected = r.marks[:0], nil
	if r.err != nil || r.ended || r.in.watch != nil && r.in.watch.waits() {
		return dst, r.ended, r.err
	}
	r.more = false
	for r.again = true; r.again; {
		r.again = false
		dst = r.decode(dst, limit)
	}
	if w := r.in.watch; w != nil && r.err == nil {
		r.pos = r.off
		switch {
		case r.more:
			w.wake()
		case len(r.marks)+len(r.rejected) < limit:
			w.arm(r.in.raw)
		}
	}
	return dst, r.ended, r.err
}

// decode appends records until it has enough, or reading ends. It catches the
// codec's panics: only here is it known which line caused one.
func (r *reader[T]) decode(dst []T, limit int) (recs []T) {
	recs = dst
	var at int64
	var zero T
	var line []byte
	decoding := false
	defer func() {
		if !decoding {
			return
		}
		if p := recover(); p != nil {
			recs = recs[:len(recs)-1]
			r.refuse(at, line, fmt.Errorf("the codec panicked: %v", p), debug.Stack())
			r.again = r.err == nil
		}
	}()
	for len(r.marks)+len(r.rejected) < limit {
		var err error
		line, at, err = r.next()
		switch {
		case err == nil:
		case errors.Is(err, errTooLong):
			r.reject(at, line, err)
			r.pos = r.off
			continue
		case errors.Is(err, io.EOF) && !r.grows:
			r.ended, r.pos = true, r.off
			return recs
		case errors.Is(err, io.EOF), errors.Is(err, errMore):
			r.more = !errors.Is(err, io.EOF)
			return recs
		default:
			r.err = err
			return recs
		}
		recs = append(recs, zero)
		decoding = true
		err = r.codec.Decode(line, &recs[len(recs)-1])
		decoding = false
		if err != nil {
			recs = recs[:len(recs)-1]
			if r.refuse(at, line, err, nil); r.err != nil {
				return recs
			}
			continue
		}
		r.pos = r.off
		r.marks = append(r.marks, at)
	}
	return recs
}

// refuse sets a line aside that the codec doesn't take, or stops reading.
func (r *reader[T]) refuse(at int64, line []byte, err error, stack []byte) {
	if !r.aside {
		r.err = r.undecodable(at, err, stack)
		return
	}
	r.reject(at, line, err)
	r.pos = r.off
}

// Ready is nil for a file that ends: it always has more, or its end.
func (r *reader[T]) Ready() <-chan struct{} {
	if w := r.in.watch; w != nil {
		return w.ready
	}
	return nil
}

// Position is the byte offset of the next line, and for a file that is followed
// a sum of what is before it. It never is in a line: not in one that waits for
// its end, and not in one that is being passed over.
func (r *reader[T]) Position() []byte {
	p := position{off: r.pos}
	switch {
	case r.long != nil && r.grows:
		p = r.long.before
	case r.grows && r.err == nil:
		p = r.position()
	case r.long != nil:
		p.off = r.long.at
	}
	if p.off == r.from && r.at != nil {
		return bytes.Clone(r.at)
	}
	return []byte(p.String())
}

// Marks are the byte offsets at which the lines begin.
func (r *reader[T]) Marks() []int64 { return r.marks }

// Status counts bytes: of uncompressed data up to the position, or, as only
// that has a known total, of the compressed file as far as it was read.
func (r *reader[T]) Status() weir.Status {
	st := weir.Status{Done: r.pos, Total: r.in.size, Lag: -1, Bytes: true}
	if r.in.format != plain {
		st.Done = r.in.raw
	}
	if w := r.in.watch; w != nil {
		st.Total = max(w.size, r.in.raw)
		var all bool
		if all, st.Idle = w.drained(); all {
			st.Lag = 0
		}
	}
	st.Total = max(st.Done, st.Total)
	return st
}

// Close may be repeated.
func (r *reader[T]) Close() error {
	r.done()
	return r.in.close()
}
