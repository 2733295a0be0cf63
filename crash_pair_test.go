package weir_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
)

// other is the second database of a job that has two.
func other(db string) string { return db + "2" }

// databaseFiles are the suffixes of what lies where a job's databases are.
var databaseFiles = []string{"", "-wal", "-shm", "2", "2-wal", "2-shm"}

// hitWideRow makes what is kept for the follower too large for a manifest in
// most epochs.
type hitWideRow struct {
	Ad     string `db:"ad_id"`
	Clicks int64  `db:"clicks"`
	Pad    string `db:"pad"`
}

func wide(p weir.Pair[string, int64]) hitWideRow {
	return hitWideRow{p.Key, p.Value, strings.Repeat(p.Key, 400)}
}

// follows compares the tables of two databases, of which the one with the minutes
// decides, with what is committed. found is from before the start that restored
// it, begun from behind it: by then the follower must have been rolled forward.
func follows(found, begun, committed map[string]int64) error {
	if !maps.Equal(begun, committed) {
		return fmt.Errorf("at the first record the tables aren't what is committed (-want +got):\n%s", gocmp.Diff(committed, begun))
	}
	for _, rows := range []map[string]int64{found, committed} {
		for key, n := range rows {
			switch {
			case strings.HasPrefix(key, "minute ") && (found[key] != committed[key]):
				return fmt.Errorf("the decider's row %q was %d when %d was committed", key, found[key], committed[key])
			case found[key] > committed[key]:
				return fmt.Errorf("row %q was %d although %d, of %d, was committed: the follower ran ahead", key, found[key], committed[key], n)
			}
		}
	}
	return nil
}

// TestPairOutputLogs makes sure that what the pair is crashed for happens: that
// output logs are written and, once they have been confirmed, deleted.
func TestPairOutputLogs(t *testing.T) {
	for _, j := range hitJobs(t) {
		if !j.pair {
			continue
		}
		l := j.dry(t)
		written := 0
		for _, e := range l.m.Trace() {
			if e.Op == sim.OpLink && strings.Contains(e.Name, "/out/") {
				written++
			}
		}
		if written < 4 {
			t.Errorf("%s: %d output logs were written: %s", j.name, written, histogram(l.m.Trace()))
		}
		for _, name := range l.m.Disk().Names() {
			if strings.Contains(name, "/out/") {
				t.Errorf("%s: %s is left", j.name, name)
			}
		}
	}
}
