package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

type Sale struct {
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
}

// A line that can't be read stops the job and is named so that it is found.
func ExampleLines() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "sales.jsonl")
	data := `{"item":"tea","cents":350}` + "\n" + `{"item":"cake","cents":"four"}` + "\n"
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	// In a job this is the second argument of From, which does all that follows.
	src := file.Lines(path, codec.JSON[Sale](), file.MaxLine(64<<10))
	reader, err := src.Open(context.Background(), path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	sales, _, err := reader.Read(nil, 256)
	fmt.Println(sales, string(reader.Position()))
	if bad, ok := err.(*file.LineError); ok {
		fmt.Printf("line %d, byte offset %d: %v\n", bad.Line, bad.Offset, bad.Err)
	}
	// Output:
	// [{tea 350}] 27
	// line 2, byte offset 27: JSON string at byte 23, in /cents can't become a Go int64
}
