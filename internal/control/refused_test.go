package control

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/internal/table"
)

func TestRefused(t *testing.T) {
	tests := []struct {
		name  string
		words []string
		spoil func(db *database)
		now   func(*Config)
	}{
		{name: "another job", words: []string{`job "test"`, `"other"`}, now: func(c *Config) { c.Graph.Job = "other" }},
		{name: "key groups", words: []string{"8", "16"}, now: func(c *Config) { c.Graph.KeyGroups = 16 }},
		{name: "sink is of another kind", words: []string{"counts", transactional, atLeastOnce}, now: func(c *Config) {
			c.Sinks[0].Kind = atLeastOnce
			c.Graph.Nodes[2].Sink = &plan.SinkNode{Kind: atLeastOnce, Participant: "db"}
		}},
		{name: "step is gone", words: []string{"count", "gone"}, now: func(c *Config) { c.Graph.Nodes[1].ID = "renamed" }},
		{name: "ledger is gone", words: []string{"counts", "replaced", "--start-over"}, spoil: func(db *database) { clear(db.ledgers) }},
		{name: "older copy of the store", words: []string{"older copy", "state", "--start-over"}, spoil: func(db *database) {
			for _, r := range db.ledgers {
				r.incarnation = 99
			}
		}},
		{name: "ledger of another store", words: []string{"9-", "state", "--start-over"}, spoil: func(db *database) {
			for _, r := range db.ledgers {
				r.id = log.ID{Slot: 9, Sum: [32]byte{1}}
			}
		}},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			w := newWorld()
			db := w.database("db", transactional, "counts")
			r := w.run(t, []*database{db})
			r.started().read(5)
			r.stop()
			var change []func(*Config)
			if tt.spoil != nil {
				tt.spoil(db)
			}
			if tt.now != nil {
				change = append(change, tt.now)
			}
			before := len(w.store.entries(t))
			wants(t, w.run(t, []*database{db}, change...).wait(), ErrRefused, tt.words...)
			if after := len(w.store.entries(t)); tt.now != nil && after != before {
				t.Errorf("the log grew from %d to %d entries", before, after)
			}
			if db.value() != 5 && len(db.ledgers) > 0 {
				t.Errorf("the sink was changed: %d", db.value())
			}
		})
	}
}

func TestRefusedSinks(t *testing.T) {
	bubble(t, "two databases of which neither follows", func(t *testing.T) {
		w := newWorld()
		dbs := []*database{w.database("a", transactional, "x"), w.database("b", transactional, "y")}
		dbs[1].proud = true
		wants(t, w.run(t, dbs).wait(), ErrRefused, "sink y", "can't follow a")
	})
	bubble(t, "transactions without a store", func(t *testing.T) {
		w := newWorld()
		dbs := []*database{w.database("a", transactional, "x")}
		wants(t, w.run(t, dbs, func(c *Config) { c.StateDir = "" }).wait(), ErrRefused, "state directory")
	})
}

// TestNewStore: a new store has a new uuid, so that the old ledger isn't its
// own; whether the sink accepts that is the sink's to say.
func TestNewStore(t *testing.T) {
	bubble(t, "another uuid", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		for range 2 {
			r := w.run(t, []*database{db})
			r.started().read(5)
			r.stop()
			w.store.Files = sys.NewMemFiles()
		}
		if len(db.ledgers) != 2 {
			t.Errorf("%d ledgers, want one for each uuid", len(db.ledgers))
		}
	})
}

func TestStartOver(t *testing.T) {
	bubble(t, "a new life", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		r.started().read(5)
		r.stop()
		old := w.store.entries(t)[0].Start.UUID

		r = w.run(t, []*database{db}, func(c *Config) { c.StartOver = true })
		if f := r.started(); f.position != 0 || r.last().Restored {
			t.Errorf("started over at %d, restored %v", f.position, r.last().Restored)
		}
		if in := db.ledgers[db.key(old, "counts")].incarnation; in != r.last().Incarnation {
			t.Errorf("the old ledger belongs to incarnation %d, want it fenced by %d", in, r.last().Incarnation)
		}
		r.built().read(2)
		r.stop()
		// From then on it is an ordinary job again.
		r = w.run(t, []*database{db})
		if f := r.started(); f.position != 2 {
			t.Errorf("restored position %d, want 2", f.position)
		}
		r.stop()
	})
}

// schemas returns, for a struct, one with a field more and a string, a change
// of Config that makes it the type of what is counted.
func schemas(t *testing.T) (was, is, no func(*Config)) {
	t.Helper()
	type one struct{ N int64 }
	type two struct{ N, M int64 }
	schema := func(v interface{ Schema() string }, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return v.Schema()
	}
	key, err := table.KeyOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	with := func(value string) func(*Config) {
		return func(c *Config) {
			c.Graph.Nodes[1].Key, c.Graph.Nodes[1].Value = key.Schema(), value
			build := c.Build
			c.Build = func(ctx context.Context, connected []Participant) (Flow, error) {
				f, err := build(ctx, connected)
				f.(*flow).schema = value
				return f, err
			}
		}
	}
	return with(schema(table.ValueOf[one]())), with(schema(table.ValueOf[two]())), with(schema(table.ValueOf[string]()))
}

func TestMigration(t *testing.T) {
	was, is, no := schemas(t)
	bubble(t, "an added field gets a new base", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, was)
		r.started().read(1)
		r.checkpoint()
		r.stop()
		r = w.run(t, nil, is)
		f := r.started()
		for i := range int64(3) {
			f.read(2 + i)
			r.checkpoint()
		}
		// One manifest has one schema a step: nothing is appended to the old base.
		if !slices.Equal(f.full, []int64{3}) {
			t.Errorf("bases at barriers %v, want at 3, the first one, alone", f.full)
		}
		r.stop()
	})
	bubble(t, "another type is refused", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, was)
		r.started().read(1)
		r.stop()
		wants(t, w.run(t, nil, no).wait(), ErrRefused, "count", "int64", "string")
	})
}

func TestMigrationUndecided(t *testing.T) {
	was, is, _ := schemas(t)
	bubble(t, "also when the first try wasn't decided", func(t *testing.T) {
		w := newWorld()
		dbs := []*database{w.database("db", transactional, "counts")}
		r := w.run(t, dbs, was)
		r.started().read(1)
		r.stop()
		w.fail = func(call string) error {
			if call == "commit db 2" {
				return errors.New("crash")
			}
			return nil
		}
		r = w.run(t, dbs, is)
		r.started().read(2)
		if _, err := r.h.Checkpoint(t.Context()); err == nil {
			t.Fatal("no crash")
		}
		r.cancel()
		<-r.done
		w.fail = nil
		// The newest entry has today's schema, but the decided one is older.
		r = w.run(t, dbs, is)
		f := r.started()
		f.read(3)
		r.checkpoint()
		if !slices.Equal(f.full, []int64{2}) {
			t.Errorf("bases at barriers %v, want at 2", f.full)
		}
		r.stop()
	})
}

// A job doesn't begin in a folder that holds something else.
func TestAmongStrangers(t *testing.T) {
	for name, stranger := range map[string]bool{"photo.jpg": true, "data/x": true, ".keep": false, "lost+found/x": false, "seg/1-1-a-0-n": false} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			if dir := path.Dir(name); dir != "." {
				if err := w.store.Mkdir(dir); err != nil {
					t.Fatal(err)
				}
			}
			f, err := w.store.Create(name)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			r := w.run(t, []*database{w.database("db", transactional, "counts")})
			if stranger {
				wants(t, r.wait(), ErrRefused, strings.Split(name, "/")[0], "empty")
				return
			}
			r.started().read(3)
			r.stop()
		})
	}
}
