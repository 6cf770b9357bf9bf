use super::*;

fn peer(uid: u32, is_operator: bool) -> Peer {
    Peer { owner: Owner { uid, gid: uid, name: uid.to_string() }, is_operator, is_known: true }
}

#[test]
fn connections_are_bounded_for_a_user_for_all_users_and_for_operators() {
    let serving = Serving::default();
    let take = |uid, is_operator| Place::take(&serving, &peer(uid, is_operator));
    let mut places: Vec<Place> = (1..).map_while(|_| take(1, false)).collect();
    assert_eq!(places.len(), CONNECTIONS_PER_USER);
    places.extend((2..2_000).filter_map(|uid| take(uid, false)));
    assert_eq!(places.len(), CONNECTIONS_MAX);
    let operators: Vec<Place> = (1..).map_while(|_| take(0, true)).collect();
    assert_eq!(operators.len(), CONNECTIONS_MAX, "whatever users take");
    places.remove(0);
    assert!(take(1, false).is_some() && take(5_000, false).is_some());
    drop((places, operators));
    assert!(serving.lock().unwrap().is_empty());
}

#[test]
fn requests_that_never_end_are_bounded_together() {
    let serving = Serving::default();
    let conversation = || {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut place = Place::take(&serving, &peer(1, false)).unwrap();
        let reading = std::thread::spawn(move || (read_request(server, &mut place).unwrap_err(), place));
        let sent = client.write_all(&vec![b'x'; REQUEST_BYTES_MAX - 1]);
        (client, sent, reading)
    };
    let waiting: Vec<_> = (0..2).map(|_| conversation()).collect();
    let (client, _, third) = conversation();
    let (error, place) = third.join().unwrap();
    assert!(error.contains("take too much memory together"), "{error}");
    drop((client, place));
    for (client, sent, reading) in waiting {
        sent.unwrap();
        drop(client);
        assert!(reading.join().unwrap().0.contains("has no end"));
    }
    assert!(serving.lock().unwrap().is_empty());
}
