package sys

import "time"

// WallClock is the machine's clock.
type WallClock struct{}

// Now returns the local time.
func (WallClock) Now() time.Time { return time.Now() }

// After returns a channel that gets the time once d has passed.
func (WallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
