# It says that the tea is ready.
[ "$(sh {{ folder }}/ring.sh 0)" = "The tea is ready." ]
