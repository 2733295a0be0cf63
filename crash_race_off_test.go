//go:build !race

package weir_test

// underRace makes the crash tests take fewer samples.
const underRace = false
