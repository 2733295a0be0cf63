package table

import "bytes"

// Zeros returns a function that makes the value that entries start as. Boxed
// values are copied each time: two entries must not share a map or a slice.
func Zeros[V any](v Value, zero V) func() V {
	if v.l == nil || v.l.flat {
		return func() V { return zero }
	}
	var buf bytes.Buffer
	if err := v.l.enc.MarshalToBuffer(zero, &buf); err != nil {
		return func() V { return zero } // the first Freeze says why
	}
	return func() (fresh V) {
		if err := v.l.dec.Unmarshal(buf.Bytes(), &fresh); err != nil {
			return zero
		}
		return fresh
	}
}
