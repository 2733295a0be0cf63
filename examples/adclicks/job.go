package main

import (
	"cmp"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/cli"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// Click is one line of the input.
type Click struct {
	ID   string    `json:"click_id"`
	Ad   string    `json:"ad_id"`
	User string    `json:"user_id"`
	At   time.Time `json:"ts"`
}

// AdMinute is a row of the table ad_minute, or a line of the files minute-files-*.
type AdMinute struct {
	Ad     string `db:"ad_id" json:"ad_id"`
	Minute string `db:"minute" json:"minute"`
	Clicks int64  `db:"clicks" json:"clicks"`
}

// AdTotal is a row of the table ad_total, or a line of the files total-files-*.
type AdTotal struct {
	Ad     string `db:"ad_id" json:"ad_id"`
	Clicks int64  `db:"clicks" json:"clicks"`
}

// How the counts reach the database.
const (
	transactional = "transactional" // changed rows, in the checkpoint's transaction
	upsert        = "upsert"        // every update at once, safe to repeat
	increment     = "increment"     // the common mistake: clicks = clicks + 1
)

// settings is what a run can choose.
type settings struct {
	db, totalDB, files          string // where the counts go; "": not there
	sink                        string
	dedup, outOfOrder, lateness time.Duration
	// deadLetters stores lines that can't be taken, instead of stopping at the first.
	deadLetters bool
	// watch sees each ad's total as it is computed; nil but in the demo.
	watch func(ad string, clicks int64)
}

// admitted is how late a click may be for Distinct, whatever the windows take:
// whether a click counts in ad_total must not depend on the minutes' lateness.
const admitted = 31 * time.Minute

func job(p *cli.Params) *weir.Job {
	input := p.Need("input", "file or glob of JSON lines: plain, .gz or .zst")
	var opts []file.Option
	if p.Bool("follow", false, "go on reading as the files grow and, with a glob, as files come; until the job is stopped") {
		opts = append(opts, file.Follow())
	}
	files := p.String("files", "", "folder for files of JSON lines with each count that changes; besides the tables, or without --db instead of them")
	const help = "SQLite database for the tables ad_minute and ad_total"
	var db string
	if files == "" {
		db = p.Need("db", help)
	} else {
		db = p.String("db", "", help)
	}
	return build(file.Lines(input, codec.JSON[Click](), opts...), settings{
		db:          db,
		totalDB:     p.String("total-db", "", "SQLite database for ad_total, if it isn't to be in that of ad_minute"),
		files:       files,
		sink:        p.Choice("sink", transactional, []string{transactional, upsert, increment}, "how counts reach the database"),
		dedup:       p.Duration("dedup", time.Hour, "two clicks with one id, less than this apart, are one; 0: every line counts"),
		outOfOrder:  p.Duration("out-of-order", 30*time.Second, "how much the clicks of a file may be out of order"),
		lateness:    p.Duration("lateness", 30*time.Minute, "how long a minute's count is corrected by late clicks"),
		deadLetters: p.Bool("dead-letters", false, "store lines that can't be taken in the table dead_letter, instead of stopping at the first"),
	})
}

// build declares the job: two branches behind one Distinct, and a sink for each
// place where their counts are wanted.
func build(clicks weir.Source[Click], c settings) *weir.Job {
	job := weir.NewJob("ad-clicks")
	if c.deadLetters {
		job.DeadLetters("dead-letters", letters(c))
	}
	all := job.From("clicks", clicks, weir.EventTime(func(c Click) time.Time { return c.At }, c.outOfOrder))
	if c.dedup != 0 { // a negative one is refused as declared
		all = all.KeyBy(func(c Click) string { return c.ID }).
			Distinct("seen", c.dedup, weir.Admit(admitted)).Stream
	}
	byMinute, byAd := all.KeyBy(func(c Click) string { return c.Ad }), all.KeyBy(func(c Click) string { return c.Ad })
	emission, emit := window.EachRecord, []weir.EmitOption(nil)
	if c.sink == transactional || c.db == "" {
		emission, emit = window.EachBarrier, []weir.EmitOption{weir.EachBarrier()}
	}
	minutes := byMinute.Window(window.Tumbling(time.Minute, window.Lateness(c.lateness), emission)).
		Count("clicks-per-minute").
		Map(func(r weir.Result[string, int64]) AdMinute {
			return AdMinute{r.Key, r.Start.Format(time.RFC3339), r.Value}
		})
	totals := byAd.Count("clicks-per-ad", emit...).
		Map(func(p weir.Pair[string, int64]) AdTotal {
			if c.watch != nil {
				c.watch(p.Key, p.Value)
			}
			return AdTotal{p.Key, p.Value}
		})
	minuteTable, totalTable := tables(c)
	if c.db != "" {
		minutes.To("ad-minute", minuteTable)
	}
	if c.db != "" || c.totalDB != "" {
		totals.To("ad-total", totalTable)
	}
	if c.files != "" {
		minutes.To("minute-files", file.JSONLines[AdMinute](c.files))
		totals.To("total-files", file.JSONLines[AdTotal](c.files))
	}
	return job
}

// tables are the two tables: in one database one participant, so one transaction
// with a ledger row for each; in two the first decides and the other one follows.
// Or, for the mistake, two functions that add.
func tables(c settings) (weir.Sink[AdMinute], weir.Sink[AdTotal]) {
	minutes := sqlite.Upsert[AdMinute](c.db, "ad_minute", "ad_id", "minute")
	totals := sqlite.Upsert[AdTotal](cmp.Or(c.totalDB, c.db), "ad_total", "ad_id")
	switch c.sink {
	case upsert:
		return minutes.Eager(), totals.Eager()
	case increment:
		a := &adder{path: c.db}
		b := a
		if c.totalDB != "" {
			b = &adder{path: c.totalDB}
		}
		return weir.Each(a.minute), weir.Each(b.total)
	}
	return minutes, totals
}

// letters is where lines go that can't be taken: beside the counts.
func letters(c settings) weir.Sink[weir.DeadLetter] {
	if c.db == "" {
		return file.JSONLines[weir.DeadLetter](c.files)
	}
	table := sqlite.Upsert[weir.DeadLetter](c.db, "dead_letter", "source", "split", "mark", "step")
	if c.sink == upsert {
		return table.Eager()
	}
	return table
}
