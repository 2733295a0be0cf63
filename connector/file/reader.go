package file

import (
	"io"
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
	err   error   // how reading ended; io.EOF at the end
}

// Read never waits: all there is to wait for in a regular file is the disk.
func (r *reader[T]) Read(dst []T, max int) ([]T, bool, error) {
	r.marks = r.marks[:0]
	for len(r.marks) < max && r.err == nil {
		line, at, err := r.next()
		if err != nil {
			r.err = err
			break
		}
		var zero T
		dst = append(dst, zero)
		if err := r.codec.Decode(line, &dst[len(dst)-1]); err != nil {
			dst, r.err = dst[:len(dst)-1], r.undecodable(at, err)
			break
		}
		r.pos = r.off
		r.marks = append(r.marks, at)
	}
	if r.err == io.EOF {
		r.pos = r.off
		return dst, true, nil
	}
	return dst, false, r.err
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
