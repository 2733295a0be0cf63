// Command kafkaclicks counts ad clicks from a Kafka topic: per ad and minute into
// another topic, each click once, also after a crash at any moment.
package main

import "github.com/weirstream/weir/cli"

func main() {
	cli.Main(job, cli.WithCommand(produceCommand()))
}
