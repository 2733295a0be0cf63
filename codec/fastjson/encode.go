package fastjson

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"math"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// append encodes the value at p. It returns false where v2 must do it, or say what
// is wrong; dst is then of no use.
func (n *node) append(dst []byte, p unsafe.Pointer, depth int) ([]byte, bool) {
	if depth > maxDepth {
		return dst, false // it may contain itself
	}
	switch n.enc {
	case stringKind:
		return appendString(dst, *(*string)(p))
	case boolKind:
		return strconv.AppendBool(dst, *(*bool)(p)), true
	case intKind:
		return strconv.AppendInt(dst, n.intAt(p), 10), true
	case uintKind:
		return strconv.AppendUint(dst, n.uintAt(p), 10), true
	case floatKind:
		return n.appendFloat(dst, p)
	case timeKind:
		return appendTime(dst, *(*time.Time)(p))
	case structKind:
		return n.appendStruct(dst, p, depth)
	case sliceKind:
		return n.appendSlice(dst, p, depth)
	case pointerKind:
		to := *(*unsafe.Pointer)(p)
		if to == nil {
			return append(dst, "null"...), true
		}
		return n.elem.append(dst, to, depth+1)
	}
	b, err := json.Marshal(reflect.NewAt(n.typ, p).Interface(), json.Deterministic(true))
	return append(dst, b...), err == nil
}

func (n *node) intAt(p unsafe.Pointer) int64 {
	switch n.bits {
	case 8:
		return int64(*(*int8)(p))
	case 16:
		return int64(*(*int16)(p))
	case 32:
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

func (n *node) uintAt(p unsafe.Pointer) uint64 {
	switch n.bits {
	case 8:
		return uint64(*(*uint8)(p))
	case 16:
		return uint64(*(*uint16)(p))
	case 32:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func (n *node) appendStruct(dst []byte, p unsafe.Pointer, depth int) ([]byte, bool) {
	dst = append(dst, '{')
	first := len(dst)
	for i := range n.fields {
		f := &n.fields[i]
		at := unsafe.Add(p, f.offset)
		if f.omitzero && f.node.zero(at) {
			continue
		}
		before := len(dst)
		if before > first {
			dst = append(dst, ',')
		}
		dst = append(dst, f.quoted...)
		start := len(dst)
		var ok bool
		if dst, ok = f.node.append(dst, at, depth+1); !ok {
			return dst, false
		}
		if f.omitempty {
			switch string(dst[start:]) {
			case `null`, `""`, `[]`, `{}`:
				dst = dst[:before]
			}
		}
	}
	return append(dst, '}'), true
}

// zero is what omitzero asks for types without a method IsZero.
func (n *node) zero(p unsafe.Pointer) bool {
	switch n.enc {
	case stringKind:
		return *(*string)(p) == ""
	case timeKind:
		return (*time.Time)(p).IsZero()
	case intKind:
		return n.intAt(p) == 0
	}
	return reflect.NewAt(n.typ, p).Elem().IsZero()
}

func (n *node) appendSlice(dst []byte, p unsafe.Pointer, depth int) ([]byte, bool) {
	// Whatever the elements are, the header of a slice is the same.
	header := *(*[]byte)(p)
	data := unsafe.Pointer(unsafe.SliceData(header))
	dst = append(dst, '[')
	for i := range header {
		if i > 0 {
			dst = append(dst, ',')
		}
		var ok bool
		if dst, ok = n.elem.append(dst, unsafe.Add(data, uintptr(i)*n.elem.size), depth+1); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

func appendString(dst []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			out, err := jsontext.AppendQuote(dst, s)
			return out, err == nil
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"'), true
}

// appendFloat writes the shortest number that means the same, in the form that
// JavaScript gives it.
func (n *node) appendFloat(dst []byte, p unsafe.Pointer) ([]byte, bool) {
	var v float64
	if n.bits == 32 {
		v = float64(*(*float32)(p))
	} else {
		v = *(*float64)(p)
	}
	size := math.Abs(v)
	if !(size <= math.MaxFloat64) {
		return dst, false
	}
	tiny, huge := size < 1e-6, size >= 1e21
	if n.bits == 32 {
		tiny, huge = float32(size) < 1e-6, float32(size) >= 1e21
	}
	form := byte('f')
	if size != 0 && (tiny || huge) {
		form = 'e'
	}
	dst = strconv.AppendFloat(dst, v, form, -1, n.bits)
	if end := len(dst); form == 'e' && end >= 4 && dst[end-4] == 'e' && dst[end-3] == '-' && dst[end-2] == '0' {
		dst[end-2] = dst[end-1] // e-09 is e-9
		dst = dst[:end-1]
	}
	return dst, true
}

func appendTime(dst []byte, t time.Time) ([]byte, bool) {
	if y := t.Year(); y < 0 || y > 9999 {
		return dst, false
	}
	if _, offset := t.Zone(); offset <= -24*3600 || offset >= 24*3600 {
		return dst, false
	}
	dst = append(dst, '"')
	dst = t.AppendFormat(dst, time.RFC3339Nano)
	return append(dst, '"'), true
}
