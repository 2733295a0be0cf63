//go:build !linux

package main

import "errors"

// canStarve says that limitFiles works here.
const canStarve = false

// limitFiles can't be done to another process here.
func limitFiles(int, uint64) (uint64, error) { return 0, errors.ErrUnsupported }
