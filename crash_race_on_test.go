//go:build race

package weir_test

// underRace makes the crash tests take fewer samples: everything is many times
// slower then, and it is the interleavings that count.
const underRace = true
