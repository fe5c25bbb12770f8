module stompkit/go_stomp

go 1.18

require github.com/go-stomp/stomp/v3 v3.1.3
