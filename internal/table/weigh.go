package table

import "reflect"

// weights estimates what boxed values take besides their own words: encoding
// them, which a freeze does anyway, tells how long each is, and a few are looked
// at closely to tell how much memory a byte of an encoding stands for.
type weights struct {
	sizes       []uint32 // of each entry's encoding, 0 before the first
	total       int64    // of sizes
	seen        int
	memory, enc float64 // of the values that were looked at
}

const (
	sampled = 64 // one value in so many is looked at closely
	unknown = 2  // bytes of memory a byte of an encoding, before any was
)

// weigh notes the length of an entry's encoding.
func weigh[V any](w *weights, id, size uint32, v *V) {
	w.set(id, size)
	if w.seen++; w.seen%sampled == 1 {
		w.memory += float64(behind(reflect.ValueOf(v).Elem()))
		w.enc += float64(max(1, size))
	}
}

func (w *weights) set(id, size uint32) {
	w.total += int64(size) - int64(w.sizes[id])
	w.sizes[id] = size
}

func (w *weights) reset() {
	clear(w.sizes)
	w.total = 0
}

func (w *weights) bytes() int64 {
	if w.enc == 0 {
		return unknown * w.total
	}
	return int64(float64(w.total) * w.memory / w.enc)
}

// behind is the memory that v points to, its own words not included.
func behind(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		n := int64(v.Cap()) * int64(v.Type().Elem().Size())
		return n + elements(v)
	case reflect.Array:
		return elements(v)
	case reflect.Struct:
		var n int64
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
		return n
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + behind(v.Elem())
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		// A map's groups of eight are at most seven eighths full and half of
		// that after they were split; a control byte an entry.
		pair := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + 1
		n := 48 + int64(v.Len())*pair*3/2
		for it := v.MapRange(); it.Next(); {
			n += behind(it.Key()) + behind(it.Value())
		}
		return n
	}
	return 0
}

// elements is what the elements of a slice or an array point to.
func elements(v reflect.Value) int64 {
	if !points(v.Type().Elem()) {
		return 0
	}
	var n int64
	for i := range v.Len() {
		n += behind(v.Index(i))
	}
	return n
}

// points reports whether a value of type t may point to more.
func points(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		return true
	case reflect.Array:
		return points(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if points(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
