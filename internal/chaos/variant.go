package main

import (
	"math/rand/v2"
	"path/filepath"
)

// variant is where a job's counts go.
type variant struct {
	name             string
	db, total, files bool // ad_minute and ad_total in a database; ad_total in one of its own; both in a folder
	eager            bool // rows are written as soon as they are computed, and the files get every update
}

// followed says that one database is rolled forward to another's decision: its
// rows lie in output logs until then.
func (v variant) followed() bool { return v.total && !v.eager }

// variants are the kinds of sinks, and the pairs of them that one job can have.
var variants = []variant{
	{name: "SQLite", db: true},
	{name: "eager upsert", db: true, eager: true},
	{name: "SQLite + SQLite", db: true, total: true},
	{name: "SQLite + files", db: true, files: true},
	{name: "files alone", files: true},
	{name: "eager upsert + files", db: true, files: true, eager: true},
	{name: "eager upsert + eager upsert", db: true, total: true, eager: true},
	{name: "SQLite + SQLite + files", db: true, total: true, files: true},
}

// variantOf deals the variants: each comes once in as many jobs as there are,
// in an order that the seed decides.
func variantOf(seed uint64, job int) variant {
	n := len(variants)
	rng := rand.New(rand.NewPCG(seed, 1<<63|uint64((job-1)/n)))
	return variants[rng.Perm(n)[(job-1)%n]]
}

// lasting is how many kills a job is given before it may come to its end: few
// enough that every variant has its turn.
func lasting(rng *rand.Rand, rounds int) int {
	return min(4+rng.IntN(5), max(1, rounds/len(variants)))
}

// party is one of a job's participants: a database or a folder.
type party struct {
	name string
	// decides: its ledger says which checkpoint is committed. In a variant
	// without such a party the store's newest entry says it.
	decides bool
	eager   bool
	mine    func(cell) bool              // the counts that go there
	look    func(disk) (contents, error) // reads it as the kill has left it
}

// contents is what one participant holds.
type contents struct {
	rows        table // up to the checkpoint that its ledgers name
	shown       table // everything that a reader sees, if that can be more; nil: it can't
	named       string
	incarnation int64 // that every ledger was claimed by
	torn        bool  // a database whose log ends in half a transaction
	sealed      bool  // files: parts that are whole and not published
	// ahead are the checkpoints of files that are published, though the ledger
	// doesn't name their epoch yet.
	ahead []string
}

// parties are the participants of a variant, the decider first if one of them is.
func (j *job) parties() []party {
	all := func(cell) bool { return true }
	isTotal := func(k cell) bool { return k.minute == "" }
	database := func(name string, ledgers int, mine func(cell) bool) party {
		path := j.path(name + ".db")
		return party{name: name + ".db", eager: j.variant.eager, mine: mine,
			look: func(disk) (contents, error) { return look(path, j.path("copy.db"), ledgers) }}
	}
	var ps []party
	switch {
	case j.variant.total:
		ps = append(ps, database("clicks", 1, func(k cell) bool { return !isTotal(k) }), database("totals", 1, isTotal))
	case j.variant.db:
		ps = append(ps, database("clicks", 2, all))
	}
	if len(ps) > 0 {
		ps[0].decides = !j.variant.eager
	}
	if j.variant.files {
		f := &folder{dir: j.path("files"), each: j.variant.eager, seen: map[string]seenFile{}}
		ps = append(ps, party{name: "files", mine: all, look: f.look})
	}
	return ps
}

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

// sinkArgs are the flags of a variant.
func (j *job) sinkArgs() []string {
	args := []string{"--sink", "transactional"}
	if j.variant.eager {
		args = []string{"--sink", "upsert"}
	}
	if j.variant.db {
		args = append(args, "--db", j.path("clicks.db"))
	}
	if j.variant.total {
		args = append(args, "--total-db", j.path("totals.db"))
	}
	if j.variant.files {
		args = append(args, "--files", j.path("files"))
	}
	return args
}

// of keeps the counts that go to a participant.
func (p party) of(t table) table {
	own := table{}
	for k, n := range t {
		if p.mine(k) {
			own[k] = n
		}
	}
	return own
}
