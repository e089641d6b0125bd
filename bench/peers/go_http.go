// SPDX-License-Identifier: Apache-2.0

// Hello over Go's net/http. Prints `ready PORT`; ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func hello(answer http.ResponseWriter, _ *http.Request) {
	answer.Header().Set("Content-Type", "text/plain")
	io.WriteString(answer, "Hello world!")
}

func main() {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("ready %d\n", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(http.Serve(listener, http.HandlerFunc(hello)))
}
