package main

import (
	"slices"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// phase is what a process was at when it was killed, as far as that can be seen
// afterwards: on the disk, and by whether it had said that it starts to read,
// which it does before the first record. What leaves no trace isn't guessed: a
// barrier that is out but of which nothing has been written yet is "reading",
// and a commit whose rows are all in the database's log before the database has
// confirmed them is a commit that happened.
type phase struct{ name, says string }

var (
	starting   = phase{"starting", "no start entry in the log yet"}
	restarting = phase{"restarting", "an error had ended it in place, and the next start entry isn't in the log"}
	genesis    = phase{"genesis", "a start entry, and a ledger that names no checkpoint"}
	fencing    = phase{"fencing", "a start entry, and some ledgers are the earlier start's"}
	rolling    = phase{"rolling", "the ledgers are claimed, and a follower is a checkpoint of an earlier start behind"}
	restoring  = phase{"restoring", "the ledgers are claimed, the first record wasn't read"}
	reading    = phase{"reading", "none of the others: no trace of a barrier"}
	rows       = phase{"rows", "a transaction was half written, without an entry: eager rows"}
	merging    = phase{"merging", "state was merged in the background, and no checkpoint names the result"}
	segments   = phase{"segments", "a barrier was out: segments, or parts of them, without an entry"}
	sealing    = phase{"sealing", "a barrier was out: files of the sink were whole, without an entry"}
	staging    = phase{"staging", "a barrier was out: an output log, or a part of one, without an entry"}
	entering   = phase{"entering", "an entry was being written, and isn't in the log"}
	undecided  = phase{"undecided", "the entry of a checkpoint that the decider's ledger doesn't name"}
	committing = phase{"committing", "the same, and its transaction was half written"}
	following  = phase{"following", "a checkpoint was decided, and a follower's ledger doesn't name it"}
	publishing = phase{"publishing", "the same, and some of its files were published"}
	retiring   = phase{"retiring", "a retire entry, and some of what it lists is still there"}
	ending     = phase{"ending", "the last checkpoint was committed, the process was still there"}

	phases = []phase{starting, restarting, genesis, fencing, rolling, restoring, reading, rows, merging, segments, sealing, staging,
		entering, undecided, committing, following, publishing, retiring, ending}
)

// scene is everything that a kill has left.
type scene struct {
	disk
	parties []party
	have    []contents  // of each party
	decided trial.Entry // the checkpoint that is committed, with slot 0: none
	before  int64       // the log's last slot when the process was started
	reads   int         // how often it said that it starts to read
	fails   int         // and that an error had ended it in place
}

// phase says what the process was at.
func (s scene) phase() phase {
	me := s.newest(trial.KindStart).Slot
	started := s.started(s.before)
	switch {
	case started == 0:
		return starting
	case started <= s.fails:
		return restarting
	case s.any(func(c contents) bool { return c.named == "" }):
		return genesis
	case s.any(func(c contents) bool { return c.incarnation != me }):
		return fencing
	}
	behind := s.any(func(c contents) bool { return c.named != s.decided.ID })
	switch {
	case behind && s.decided.Manifest.Incarnation != me:
		return rolling
	case s.reads <= s.fails:
		return restoring
	}
	return s.working(me, behind)
}

// working says what a process was at that had begun to read.
func (s scene) working(me int64, behind bool) phase {
	last := s.newest(trial.KindCheckpoint)
	torn := s.any(func(c contents) bool { return c.torn })
	switch {
	case last.Manifest.Incarnation == me && last.ID != s.decided.ID && torn:
		return committing
	case last.Manifest.Incarnation == me && last.ID != s.decided.ID:
		return undecided
	case s.any(func(c contents) bool { return len(c.ahead) > 0 }):
		return publishing
	case behind:
		return following
	case s.halfRetired():
		return retiring
	case s.inTemp("WEIR-LOG"):
		return entering
	case s.inTemp("WEIR-OUT") || s.after("out", me, s.decided.Manifest.Epoch):
		return staging
	case s.any(func(c contents) bool { return c.sealed }):
		return sealing
	case s.after("seg", me, s.decided.Manifest.Epoch):
		return segments
	case s.merged(me):
		return merging
	case len(s.temps) > 0:
		return segments
	case s.decided.Manifest.Finished:
		return ending
	case torn:
		return rows
	}
	return reading
}

func (s scene) any(is func(contents) bool) bool { return slices.ContainsFunc(s.have, is) }
