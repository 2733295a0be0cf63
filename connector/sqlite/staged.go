package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/weirstream/weir"
)

// What a follower keeps with a checkpoint, all numbers little endian:
//
//	byte     version, 1
//	uvarint  number of sinks; for each:
//	  text     id of the sink
//	  uvarint  number of columns; for each its name as a text and its kind as a byte
//	  uvarint  number of rows; for each a byte, 1 if it deletes and else 0, and its
//	             values in the order of the columns, of a row that deletes the
//	             key's only: numbers as 8 bytes (floats as their bits), texts and
//	             blobs as texts
//
// A text is a uvarint length and as many bytes.
const stagedVersion = 1

// stage encodes the rows of an epoch. It is never empty.
func (p *participant) stage(epoch int64) []byte {
	out := binary.AppendUvarint([]byte{stagedVersion}, uint64(len(p.tables)))
	for _, t := range p.tables {
		batches, _ := t.epoch(epoch)
		p.refs = sorted(batches, p.refs)
		out = appendText(out, t.sink)
		out = binary.AppendUvarint(out, uint64(len(t.layout.cols)))
		for _, c := range t.layout.cols {
			out = append(appendText(out, c.name), byte(c.kind))
		}
		out = binary.AppendUvarint(out, uint64(len(p.refs)))
		rows := batchRows{batches, p.refs}
		for row := range p.refs {
			gone := rows.gone(row)
			out = append(out, 0)
			if gone {
				out[len(out)-1] = 1
			}
			for col := range t.layout.cols {
				if gone && !t.layout.cols[col].key {
					continue
				}
				switch v := rows.value(row, col).(type) {
				case int64:
					out = binary.LittleEndian.AppendUint64(out, uint64(v))
				case float64:
					out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
				case string:
					out = appendText(out, v)
				case []byte:
					out = appendText(out, v)
				}
			}
		}
	}
	return out
}

func appendText[T string | []byte](out []byte, v T) []byte {
	return append(binary.AppendUvarint(out, uint64(len(v))), v...)
}

// stagedRows are rows as values, one after the other.
type stagedRows struct {
	values  []driver.Value
	deletes []bool
	cols    int
}

func (r stagedRows) len() int                        { return len(r.deletes) }
func (r stagedRows) gone(row int) bool               { return r.deletes[row] }
func (r stagedRows) value(row, col int) driver.Value { return r.values[row*r.cols+col] }

// staged is the rows of one sink.
type staged struct {
	t    *table
	rows stagedRows
}

// writeStaged writes what an earlier incarnation staged.
func (p *participant) writeStaged(ctx context.Context, b []byte) error {
	all, err := p.unstage(b)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := p.c.write(ctx, s.t.layout, s.rows); err != nil {
			return err
		}
	}
	return nil
}

// unstage reads all that was staged.
func (p *participant) unstage(b []byte) ([]staged, error) {
	d := decoder{b: b}
	if v := d.byte(); v != stagedVersion {
		return nil, fmt.Errorf("%w: rows kept with the checkpoint have format %d, and this version of weir reads %d",
			weir.ErrRefused, v, stagedVersion)
	}
	var all []staged
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		sink := string(d.text())
		i := slices.IndexFunc(p.tables, func(t *table) bool { return t.sink == sink })
		if i < 0 && !d.bad {
			return nil, fmt.Errorf("%w: the checkpoint holds rows of sink %q, which isn't in the job: "+
				"start the job as it was once, so that they are committed", weir.ErrRefused, sink)
		}
		if d.bad {
			break
		}
		rows, err := d.rows(p.tables[i])
		if err != nil {
			return nil, err
		}
		all = append(all, staged{p.tables[i], rows})
	}
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: the rows kept with the checkpoint don't have the length that they say", weir.ErrCorrupt)
	}
	return all, nil
}

// decoder reads staged rows; bad says that they ended too early.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() []byte { return d.take(d.uvarint()) }

func (d *decoder) rows(t *table) (stagedRows, error) {
	l := t.layout
	same := d.uvarint() == uint64(len(l.cols))
	for i := 0; same && i < len(l.cols); i++ {
		same = string(d.text()) == l.cols[i].name
		same = kind(d.byte()) == l.cols[i].kind && same
	}
	if !same && !d.bad {
		return stagedRows{}, fmt.Errorf("%w: the checkpoint holds rows of sink %q with other columns than now: "+
			"start the job as it was once, so that they are committed", weir.ErrRefused, t.sink)
	}
	r := stagedRows{cols: len(l.cols)}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		gone := d.byte()
		if gone > 1 {
			d.bad, d.b = true, nil
			break
		}
		r.deletes = append(r.deletes, gone == 1)
		for i := range l.cols {
			var v driver.Value
			if gone == 0 || l.cols[i].key {
				v = d.value(l.cols[i].kind)
			}
			r.values = append(r.values, v)
		}
	}
	if d.bad {
		r.values, r.deletes = nil, nil
	}
	return r, nil
}

func (d *decoder) value(k kind) driver.Value {
	switch k {
	case kindText, kindTime:
		return string(d.text())
	case kindBlob:
		return append([]byte{}, d.text()...)
	}
	b := d.take(8)
	if b == nil {
		return nil
	}
	v := binary.LittleEndian.Uint64(b)
	if k == kindFloat {
		return math.Float64frombits(v)
	}
	return int64(v)
}
