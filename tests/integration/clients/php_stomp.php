<?php
// A client on PHP's extension "stomp" for ../test_php_stomp.py, which knows 1.0 only.
//
// Arguments: the URI of the broker, a queue, and what to do:
//   burst SIZE...   send bodies of these sizes at once, and then read as many
//   echo SIZE...    send a body of each size, and read it before the next
//   ack SIZE...     as burst, in the mode client: acknowledge each, and read what is left by another
//   leave SIZE...   as burst, in the mode client: acknowledge none, and end; another connection reads
//   commit SIZE...  as burst, where what is sent is part of a transaction
// Prints a line for each message that was read: its size and the MD5 of its body, or "none".

[$_, $uri, $queue, $way] = array_slice($argv, 0, 4);
$sizes = array_map('intval', array_slice($argv, 4));
$mode = in_array($way, ['ack', 'leave'], true) ? 'client' : 'auto';

function body(int $size): string
{
    $octets = '';
    for ($i = 0; $i < 256; $i++) {
        $octets .= chr($i);
    }
    return substr(str_repeat($octets, intdiv($size, 256) + 1), 0, $size);
}

function connect(string $uri): Stomp
{
    $stomp = new Stomp($uri);
    $stomp->setReadTimeout(20);
    return $stomp;
}

function send(Stomp $stomp, string $queue, int $size, array $headers): void
{
    if (!$stomp->send($queue, body($size), $headers)) {
        exit("not sent: " . $stomp->error() . "\n");
    }
}

function read(Stomp $stomp): ?StompFrame
{
    $frame = $stomp->readFrame();
    if ($frame === false) {
        echo "none\n";
        return null;
    }
    echo strlen($frame->body), ' ', md5($frame->body), "\n";
    return $frame;
}

$stomp = connect($uri);
$stomp->subscribe($queue, ['ack' => $mode, 'receipt' => 'subscribed', 'prefetch-count' => '1000']);
if ($way === 'echo') {
    foreach ($sizes as $size) {
        send($stomp, $queue, $size, ['receipt' => "sent-$size"]);
        read($stomp);
    }
    exit;
}
$sender = connect($uri);
$headers = [];
if ($way === 'commit') {
    $sender->begin('t');
    $headers = ['transaction' => 't'];
}
foreach ($sizes as $size) {
    send($sender, $queue, $size, $headers);
}
if ($way === 'commit') {
    $sender->commit('t', ['receipt' => 'committed']);
}
foreach ($sizes as $size) {
    $frame = read($stomp);
    if ($way === 'ack' && $frame !== null) {
        $stomp->ack($frame, ['receipt' => 'acked']);
    }
}
if ($mode === 'client') {
    unset($stomp);
    $other = connect($uri);
    $other->subscribe($queue, ['ack' => 'auto', 'receipt' => 'subscribed']);
    if ($way === 'leave') {
        foreach ($sizes as $size) {
            read($other);
        }
    }
    // The only one that is left.
    send($sender, $queue, 3, ['receipt' => 'last']);
    read($other);
}
