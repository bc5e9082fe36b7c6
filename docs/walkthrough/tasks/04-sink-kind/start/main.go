// Telegram sends a telegram: main HOST:PORT ID TEXT.
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("main HOST:PORT ID TEXT")
	}
	answer, err := send(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(answer)
}

// send returns the line that the office answers.
func send(address, id, text string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "%s %s\n", id, text); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}
