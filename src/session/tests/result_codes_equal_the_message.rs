//! `msg/ResultCode.msg` is the source of the numbers.

use flashrt_session::ResultCode;

#[test]
fn every_constant_of_the_message_is_here_and_nothing_else() {
    let text = include_str!("../../../msg/ResultCode.msg");
    let constants: Vec<(String, u16)> = text
        .lines()
        .filter_map(|l| l.split('#').next()?.trim().strip_prefix("uint16 "))
        .filter_map(|l| l.split_once('='))
        .map(|(name, number)| (name.to_string(), number.parse().unwrap()))
        .collect();
    let ours: Vec<(String, u16)> = ResultCode::ALL
        .iter()
        .map(|c| (c.name().to_string(), c.number()))
        .collect();
    assert_eq!(constants, ours);
    for code in ResultCode::ALL {
        assert_eq!(ResultCode::from_number(code.number()), Some(*code));
    }
    assert_eq!(ResultCode::from_number(999), None);
}
