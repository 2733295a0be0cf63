// Command adclicks counts ad clicks: per ad and minute into the table
// ad_minute, per ad into ad_total, each click once. It is the job that the
// documentation tells the story of, and its demo crashes it on purpose.
package main

import "github.com/weirstream/weir/cli"

func main() {
	cli.Main(job, cli.WithCommand(demoCommand()), cli.WithCommand(lifeCommand()))
}
