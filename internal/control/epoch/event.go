package epoch

// Event is something that happened. Package control translates what tasks,
// the clock, callers and its own committer say into events, in one order.
type Event interface{ event() }

// The events.
type (
	// Tick says that the interval has passed.
	Tick struct{}
	// Asked says that somebody waits for a checkpoint from now on.
	Asked struct{}
	// Wants says that a task asks for an early barrier. With Hold a buffer is
	// full: sources must not read on before the barrier has been emitted.
	Wants struct{ Hold bool }
	// Stop asks for one more checkpoint, and then the end.
	Stop struct{}
	// Ended says that a source task has read all its splits to their end.
	Ended struct{ Task string }
	// Rests says that a source task has nothing to read any more, although not
	// all its splits have ended.
	Rests struct{ Task string }
	// Acked says that a task has passed a barrier on.
	Acked struct {
		Epoch int64
		Task  string
		// AllEnded says that every split of the task had ended; true for a
		// task without splits.
		AllEnded bool
		Saved    []Saved // one for each of its steps with state
	}
	// Written says that the segment of a task is durable.
	Written struct {
		Epoch int64
		Task  string
	}
	// Prepared says that every participant has prepared the epoch.
	Prepared struct{ Epoch int64 }
	// Entered says that the checkpoint's entry is in the log.
	Entered struct{ Epoch int64 }
	// Decided says that the decider has committed the epoch.
	Decided struct{ Epoch int64 }
	// Followed says that every other participant has: all ledgers name it.
	Followed struct{ Epoch int64 }
	// Retired says that what the epoch made superfluous is gone.
	Retired struct{ Epoch int64 }
	// Merged says that the first sections of a step's chain have been merged in
	// the background: the next checkpoint names what came of them instead.
	Merged struct {
		Step           string
		Parts, Into    int   // sections merged; sections that came of it, 0 or 1
		Entries, Holds int64 // entries merged; entries that came of it
	}
	// Unmerged says that a merge came to nothing.
	Unmerged struct{ Step string }
	// Failed says that anything at all went wrong.
	Failed struct{ Reason string }
)

// Saved is what one step in one task saved at a barrier.
type Saved struct {
	Step    string
	Full    bool  // everything, not only what changed
	Entries int64 // written, deletes included
	Live    int64 // that the task holds
}

func (Tick) event()     {}
func (Asked) event()    {}
func (Wants) event()    {}
func (Stop) event()     {}
func (Ended) event()    {}
func (Rests) event()    {}
func (Acked) event()    {}
func (Written) event()  {}
func (Prepared) event() {}
func (Entered) event()  {}
func (Decided) event()  {}
func (Followed) event() {}
func (Retired) event()  {}
func (Merged) event()   {}
func (Unmerged) event() {}
func (Failed) event()   {}

// Decision is something to be done now, in the order given.
type Decision interface{ decision() }

// The decisions.
type (
	// Emit asks the sources for a barrier; the steps in Full save everything.
	Emit struct {
		Epoch int64
		Full  []string // sorted
	}
	// Hold makes the sources wait, or go on. They answer barriers either way.
	Hold struct{ On bool }
	// Write makes what a task has saved durable, in the background.
	Write struct {
		Epoch int64
		Task  string
	}
	// Prepare lets every participant prepare the epoch, in the background;
	// likewise Enter to Retire, one at a time.
	Prepare struct{ Epoch int64 }
	// Enter puts the checkpoint's entry into the log. Finished: all input has
	// ended within it.
	Enter struct {
		Epoch    int64
		Finished bool
	}
	// Decide lets the decider commit the epoch.
	Decide struct{ Epoch int64 }
	// Follow lets all others commit it.
	Follow struct{ Epoch int64 }
	// Publish tells the world that the epoch is committed.
	Publish struct{ Epoch int64 }
	// Retire removes what isn't needed any more.
	Retire struct{ Epoch int64 }
	// Merge merges the chain that the last checkpoint has of a step, in the
	// background. No other step is merged meanwhile.
	Merge struct{ Step string }
	// End ends the run: all input has been read, or it was asked to stop.
	End struct{ Finished bool }
	// Fail ends the run with an error. Everything that is under way is dropped.
	Fail struct{ Reason string }
)

func (Emit) decision()    {}
func (Hold) decision()    {}
func (Write) decision()   {}
func (Prepare) decision() {}
func (Enter) decision()   {}
func (Decide) decision()  {}
func (Follow) decision()  {}
func (Publish) decision() {}
func (Retire) decision()  {}
func (Merge) decision()   {}
func (End) decision()     {}
func (Fail) decision()    {}
