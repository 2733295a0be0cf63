//go:build !windows

package cli

import "os"

// understandsCodes: every terminal does, but one that calls itself dumb.
func understandsCodes(*os.File) bool { return true }

// modernConsole: the locale tells.
func modernConsole(func(string) (string, bool)) bool { return false }
