package file

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

// reader decodes the lines of one file.
type reader[T any] struct {
	*scanner
	codec codec.Codec[T]
	pos   int64   // behind the last record that was returned
	marks []int64 // where the records of the last Read begin
	ended bool
	err   error // what stopped reading
}

// Read never waits: all there is to wait for in a regular file is the disk.
func (r *reader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	r.marks = r.marks[:0]
	if r.err == nil && !r.ended {
		dst = r.decode(dst, limit)
	}
	return dst, r.ended, r.err
}

// decode appends records until it has enough, or reading ends. It catches the
// codec's panics: only here is it known which line caused one.
func (r *reader[T]) decode(dst []T, limit int) (recs []T) {
	recs = dst
	var at int64
	var zero T
	decoding := false
	defer func() {
		if !decoding {
			return
		}
		if p := recover(); p != nil {
			recs, r.err = recs[:len(recs)-1], r.undecodable(at, fmt.Errorf("the codec panicked: %v", p), debug.Stack())
		}
	}()
	for len(r.marks) < limit {
		var line []byte
		var err error
		line, at, err = r.next()
		if errors.Is(err, io.EOF) {
			r.ended, r.pos = true, r.off
			return recs
		}
		if err != nil {
			r.err = err
			return recs
		}
		recs = append(recs, zero)
		decoding = true
		err = r.codec.Decode(line, &recs[len(recs)-1])
		decoding = false
		if err != nil {
			r.err = r.undecodable(at, err, nil)
			return recs[:len(recs)-1]
		}
		r.pos = r.off
		r.marks = append(r.marks, at)
	}
	return recs
}

// Ready is nil: a regular file always has more, or its end.
func (r *reader[T]) Ready() <-chan struct{} { return nil }

// Position is the byte offset of the next line, as decimal text.
func (r *reader[T]) Position() []byte { return strconv.AppendInt(nil, r.pos, 10) }

// Marks are the byte offsets at which the lines begin.
func (r *reader[T]) Marks() []int64 { return r.marks }

// Status counts bytes: of uncompressed data up to the position, or, as only
// that has a known total, of the compressed file as far as it was read.
func (r *reader[T]) Status() weir.Status {
	done, total := r.pos, r.in.size
	if r.in.format != plain {
		done = r.in.raw
	}
	return weir.Status{Done: done, Total: max(done, total), Lag: -1}
}

// Close may be repeated.
func (r *reader[T]) Close() error { return r.in.close() }
