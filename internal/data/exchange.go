package data

import (
	"time"

	"github.com/weirstream/weir/internal/table"
)

const (
	credit = 4                    // batches that one sender may have under way to one receiver
	linger = 5 * time.Millisecond // how long a watermark may wait for a batch to ride on
)

// Op is a stateful step's typed input within its task.
type Op[K, T any] interface{ Batch(b *Batch[K, T]) }

// Stage is the tasks behind an exchange.
type Stage[K, T any] struct {
	Tasks  []*Task
	ops    []Op[K, T]
	id     string
	meters []*stepMeter
}

// NewStage makes the tasks of a keyed step; mk makes the step in one of them.
func NewStage[K, T any](r *Run, id string, mk func(t *Task) (Op[K, T], Marker)) *Stage[K, T] {
	s := &Stage[K, T]{id: id}
	for i := range r.Parallelism {
		t := r.newTask(id, i, r.Parallelism)
		op, head := mk(t)
		t.SetHead(head)
		s.Tasks, s.ops, s.meters = append(s.Tasks, t), append(s.ops, op), append(s.meters, t.meter(op))
	}
	return s
}

// Keyer computes a record's key and hash, once, and routes the record to the
// task that owns its key group: in this goroutine, where exactly one task feeds
// the step, or over an edge a task.
type Keyer[K comparable, T any] struct {
	task  *Task
	step  int32
	key   func(T) K
	kind  table.Key
	size  int
	stage *Batch[K, T]   // of the only receiver: not hashed yet
	cur   []*Batch[K, T] // of each edge
	edges []edge[K, T]
	route []uint16 // key group -> edge
	mask  uint64   // groups-1 if that is a power of two, else 0
	op    Op[K, T] // local
	next  Marker   // local
	meter *stepMeter
	flow  *edgeMeter
	wm    int64 // rides on the next batch; flushes nothing
	sent  int64 // local: the watermark passed on
	last  time.Time
}

type edge[K, T any] struct {
	to   *Task
	in   int32
	home chan *Batch[K, T]
	made int
	sent int64
}

// NewKeyer connects task t to every task of stage s.
func NewKeyer[K comparable, T any](t *Task, step int, kind table.Key, key func(T) K, s *Stage[K, T]) Out[T] {
	guard := guardKey(t, step, kind, &key)
	k := &Keyer[K, T]{task: t, step: int32(step), key: key, kind: kind, size: t.run.BatchLen, wm: MinTime, flow: t.run.meterEdge(s.id)}
	k.flow.home = k.home
	for i, to := range s.Tasks {
		op, meter := s.ops[i], s.meters[i]
		to.ins = append(to.ins, inbound{wm: MinTime, probe: -1, recv: func(b any) {
			batch := b.(*Batch[K, T])
			op.Batch(batch)
			meter.batch(batch.N)
			batch.reset()
			batch.home <- batch // has room for every batch of the edge
		}})
		k.edges = append(k.edges, edge[K, T]{to: to, in: int32(len(to.ins) - 1), home: make(chan *Batch[K, T], credit), sent: MinTime})
		k.cur = append(k.cur, nil)
	}
	groups := t.run.Groups
	for g := range groups {
		k.route = append(k.route, uint16(g*len(k.edges)/groups))
	}
	if groups&(groups-1) == 0 {
		k.mask = uint64(groups - 1)
	}
	if len(k.edges) == 1 {
		k.stage = k.take(0)
	}
	t.OnIdle(k.flush)
	return guard.before(k)
}

// NewLocal is a keyer whose step runs in the same task.
func NewLocal[K comparable, T any](t *Task, step int, kind table.Key, key func(T) K, op Op[K, T], next Marker) Out[T] {
	guard := guardKey(t, step, kind, &key)
	k := &Keyer[K, T]{task: t, step: int32(step), key: key, kind: kind, size: t.run.BatchLen,
		wm: MinTime, sent: MinTime, op: op, next: next, meter: t.meter(op)}
	k.stage = newBatch[K, T](k.size, nil)
	t.OnIdle(k.flush)
	return guard.before(k)
}

// Push adds one record. With one receiver a whole batch is hashed at once.
func (k *Keyer[K, T]) Push(p *T, at int64) {
	if len(k.edges) > 1 {
		k.deal(p, at)
		return
	}
	b := k.stage
	if b == nil {
		return // the run is over
	}
	t := k.task
	t.Step = k.step
	n := b.N
	b.Recs[n] = *p
	b.Keys[n] = k.key(*p)
	b.At[n] = at
	b.Origin[n] = t.Origin
	if t.Behind != MinTime {
		b.Late = append(b.Late, Late{n, t.Behind})
	}
	b.N = n + 1
	if b.N == k.size {
		k.whole()
	}
}

// deal hashes one record and puts it into its receiver's batch.
func (k *Keyer[K, T]) deal(p *T, at int64) {
	t := k.task
	t.Step = k.step
	key := k.key(*p)
	h := table.Hash(k.kind, &key)
	j := k.edgeOf(h)
	b := k.cur[j]
	if b == nil {
		if b = k.take(j); b == nil {
			return // the run is over
		}
		k.cur[j] = b
	}
	n := b.N
	b.Recs[n], b.Keys[n], b.At[n], b.Hash[n], b.Origin[n] = *p, key, at, h, t.Origin
	if t.Behind != MinTime {
		b.Late = append(b.Late, Late{n, t.Behind})
	}
	if b.N = n + 1; b.N == k.size {
		k.send(j)
	}
}

func (k *Keyer[K, T]) edgeOf(h uint64) int {
	if k.mask != 0 {
		return int(k.route[h&k.mask])
	}
	return int(k.route[h%uint64(len(k.route))])
}

// whole hashes the stage and hands it to the only receiver.
func (k *Keyer[K, T]) whole() {
	b := k.stage
	table.HashAll(k.kind, b.Keys[:b.N], b.Hash[:b.N])
	if k.op != nil {
		behind, origin := k.task.Behind, k.task.Origin
		k.op.Batch(b)
		k.meter.batch(b.N)
		b.reset()
		k.passLocal()
		k.task.Behind, k.task.Origin = behind, origin
		return
	}
	k.cur[0] = b
	k.stage = nil
	k.send(0)
	k.stage = k.take(0)
}

func (k *Keyer[K, T]) passLocal() {
	if k.wm > k.sent {
		k.sent = k.wm
		k.task.caused()
		k.next.Mark(Mark{Watermark, k.wm})
		if k.meter != nil {
			k.meter.measure()
		}
	}
}

// take gets an empty batch for edge j: the only wait of a task besides its
// mailbox. nil: the run is over.
func (k *Keyer[K, T]) take(j int) *Batch[K, T] {
	e := &k.edges[j]
	select {
	case b := <-e.home:
		return b
	default:
	}
	if e.made < credit {
		e.made++
		k.flow.made.Add(1)
		return newBatch(k.size, e.home)
	}
	began := k.flow.wait()
	defer k.flow.waitedSince(began)
	select {
	case b := <-e.home:
		return b
	case <-k.task.run.done:
		return nil
	}
}

func (k *Keyer[K, T]) send(j int) {
	e := &k.edges[j]
	e.sent = k.wm
	b := k.cur[j]
	k.cur[j] = nil
	k.flow.batches.Add(1)
	k.post(e, msg{in: e.in, batch: b, mark: Mark{Watermark, k.wm}})
}

func (k *Keyer[K, T]) post(e *edge[K, T], m msg) {
	select {
	case e.to.mail <- m:
		return
	default:
	}
	began := k.flow.wait()
	select {
	case e.to.mail <- m:
	case <-k.task.run.done:
	}
	k.flow.waitedSince(began)
}

// home is how many credits have come back.
func (k *Keyer[K, T]) home() (n int) {
	for i := range k.edges {
		n += len(k.edges[i].home)
	}
	return n
}

// flush sends partly filled batches, and watermarks that found none to ride on.
func (k *Keyer[K, T]) flush() {
	if k.stage != nil && k.stage.N > 0 {
		k.whole()
	}
	if k.op != nil {
		k.passLocal()
		return
	}
	for j, b := range k.cur {
		if b != nil && b.N > 0 {
			k.send(j)
		} else if e := &k.edges[j]; k.wm > e.sent {
			e.sent = k.wm
			k.post(e, msg{in: e.in, mark: Mark{Watermark, k.wm}})
		}
	}
}

// Mark keeps a watermark for the next batch, for the linger time at most, and
// sends other marks behind everything that is staged.
func (k *Keyer[K, T]) Mark(m Mark) {
	if m.Kind == Watermark {
		k.wm = max(k.wm, m.N)
		if now := time.Now(); m.N >= EndOfTime || now.Sub(k.last) > linger {
			k.last = now
			k.flush()
		}
		return
	}
	k.flush()
	if k.op != nil {
		k.task.caused()
		k.next.Mark(m)
		return
	}
	for i := range k.edges {
		k.post(&k.edges[i], msg{in: k.edges[i].in, mark: m})
	}
}
