package data

// Late marks record I of a batch as behind its own split's watermark WM.
type Late struct {
	I  int
	WM int64
}

// Batch is a slab of keyed records with what steps need of them in arrays of
// their own. It belongs to whoever holds it; its receiver gives it back to home.
// The slices always have full length, and N counts: four appends a record
// would cost more than the copy.
type Batch[K, T any] struct {
	N      int
	Recs   []T
	Keys   []K
	At     []int64
	Hash   []uint64
	Origin []int64
	Late   []Late // few, by I
	home   chan *Batch[K, T]
}

func newBatch[K, T any](size int, home chan *Batch[K, T]) *Batch[K, T] {
	return &Batch[K, T]{
		Recs: make([]T, size), Keys: make([]K, size), At: make([]int64, size),
		Hash: make([]uint64, size), Origin: make([]int64, size), home: home,
	}
}

func (b *Batch[K, T]) reset() { b.N, b.Late = 0, b.Late[:0] }

// behind walks the batch's late records in step with its records.
type behind struct {
	late []Late
	next int
}

// of returns the watermark that record i is behind, or MinTime. i only grows.
func (b *behind) of(i int) int64 {
	for b.next < len(b.late) && b.late[b.next].I < i {
		b.next++
	}
	if b.next < len(b.late) && b.late[b.next].I == i {
		return b.late[b.next].WM
	}
	return MinTime
}
