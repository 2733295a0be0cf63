package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// understandsCodes makes the console take the codes that move the cursor.
func understandsCodes(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// modernConsole reports a console that shows every character.
func modernConsole(getenv func(string) (string, bool)) bool {
	_, ok := getenv("WT_SESSION")
	return ok
}
