// Package data is the path of a record: sources read splits, steps pass records
// on by pointer within a task, exchanges carry batches of them to the task that
// owns their key, stateful steps keep tables, sinks get batches.
//
// A task is one goroutine and the sole owner of the state of its steps. Records
// never leave it except in a batch, and batches belong to whoever holds them.
// Watermarks, barriers and probes travel between batches, never inside one.
// What is saved, when, and where it goes is decided by package control, which
// this package knows as an interface that it answers to.
package data
